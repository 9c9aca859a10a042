#!/bin/bash
# gpuanalyze export --to torch, read by torch.cuda._memory_viz and compared with
# gpuanalyze's sums, and with PyTorch's own snapshot of the same run. Run from the
# repository's root on a machine with a GPU, with bin/gpurec and bin/gpuanalyze
# built; needs python3 with PyTorch.
#
#     OUT=/tmp/out testdata/h200/exports.sh
#
# Leaves exports.txt, the recording, the snapshots and the viewer's pages in $OUT.
# Exit: 0 when every row holds.
set -u
cd "$(dirname "$0")/../.."
OUT=$(realpath -m "${OUT:?a directory for the results}")
ROOT=$PWD
mkdir -p "$OUT"
export XDG_CACHE_HOME=$OUT/cache
cd "$OUT"
rm -rf fresh.gpurec own.pickle
timeout 60 "$ROOT/bin/gpurec" run -o fresh.gpurec -- python3 "$ROOT/testdata/h200/exports.py" program own.pickle
status=$?
"$ROOT/bin/gpuanalyze" verify fresh.gpurec
timeout 100 python3 "$ROOT/testdata/h200/exports.py" compare "$ROOT/bin/gpuanalyze" "$ROOT/testdata/h200/train.gpurec" fresh.gpurec own.pickle | tee exports.txt
differs=${PIPESTATUS[0]}
echo "the program ended with $status, the comparison with $differs"
[ "$status" = 0 ] && [ "$differs" = 0 ]
