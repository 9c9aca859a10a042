#!/bin/bash
# Two processes that lend each other device memory as NCCL does (descriptors of VMM
# handles), on the real driver: what each has of its own at every step, and odd frees.
# Run from the repository's root on a machine with a GPU, with bin/gpurec and
# bin/gpuanalyze built; needs cc and python3. SIMULATE=1: on the simulated driver.
#
#     OUT=/tmp/out testdata/h200/peers.sh
#
# Leaves the trace and peers.txt in $OUT. Exit: 0 when every row is ok.
set -eu
cd "$(dirname "$0")/../.."
OUT=$(realpath -m "${OUT:?a directory for the results}")
W=$(mktemp -d)
trap 'rm -rf "$W"' EXIT
mkdir -p "$OUT"
rm -rf "$OUT/peers.gpurec"
export XDG_CACHE_HOME=$W/cache PYTHONDONTWRITEBYTECODE=1
cc -std=gnu11 -O2 -o "$W/peers" testdata/programs/peers.c -ldl
bin/gpurec run ${SIMULATE:+--simulate-gpu} -q -o "$OUT/peers.gpurec" -- "$W/peers"
bin/gpuanalyze events --json -q "$OUT/peers.gpurec" >"$W/events.jsonl"
bin/gpuanalyze summary --json -q "$OUT/peers.gpurec" >"$W/summary.json"
set -o pipefail
python3 testdata/h200/peers.py "$W/events.jsonl" "$W/summary.json" | tee "$OUT/peers.txt"
bin/gpuanalyze verify "$OUT/peers.gpurec"
