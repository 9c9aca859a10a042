#!/bin/bash
# GPUMemTrace against PyTorch's counters on a real GPU, to the byte. Run from the
# repository's root, with bin/gpurec and bin/gpuanalyze built; needs python3 with
# PyTorch.
#
#     OUT=/tmp/out testdata/h200/scopes.sh
#
# Leaves scopes.txt, the tables, the trace, and what each program printed in $OUT.
# Exit: 0 when no row differs.
set -u
cd "$(dirname "$0")/../.."
OUT=$(realpath -m "${OUT:?a directory for the results}")
export OUT
rm -rf "$OUT/scopes.gpurec" "$OUT/cost.gpurec"
mkdir -p "$OUT"
P=$PWD/testdata/h200/scopes.py
PATH=$PWD/bin:$PATH
export PYTHONPATH=$PWD/cuda/python${PYTHONPATH:+:$PYTHONPATH}
run=(gpurec run -q -o "$OUT/scopes.gpurec" ${GPUREC_FLAGS:-} --)
bare=(${BARE:-}) # what the programs that are not recorded need where the GPU is simulated

tables() {
	local failed=0
	timeout 60 "${run[@]}" python3 "$P" record >"$OUT/record.json" || failed=1
	gpuanalyze verify "$OUT/scopes.gpurec" >"$OUT/scopes.verify" 2>&1 || failed=1
	gpuanalyze contexts --json "$OUT/scopes.gpurec" >"$OUT/contexts.json" 2>"$OUT/contexts.err" || failed=1
	timeout 90 "${bare[@]}" python3 "$P" reference >"$OUT/reference.json" || failed=1
	timeout 60 "${bare[@]}" python3 "$P" polled >"$OUT/polled.json" || failed=1
	python3 "$P" compare "$OUT" || failed=1
	echo
	timeout 60 python3 "$P" cost gpurec || failed=1
	[ $failed = 0 ]
}

tables >"$OUT/scopes.txt" 2>"$OUT/scopes.log"
status=$?
cat "$OUT/scopes.txt" "$OUT/scopes.log"
exit $status
