#!/bin/bash
# Every function of the driver that the recorder wraps, on the real driver: what
# each call returns with gpurec and without, its events, and the bytes recorded
# against cuMemGetInfo, the pools' and the graphs' own counts. Run from the
# repository's root on a machine with a GPU, with bin/gpurec and bin/gpuanalyze
# built; needs cc and python3.
#
#     OUT=/tmp/out testdata/h200/entry.sh
#
# Calls that may do harm there are rows with their reason, and are made on the
# simulated driver only (cuda/entry_test.go). SIMULATE=1 makes all of them there.
# Leaves the trace and entry.txt in $OUT. Exit: 0 when every row is ok.
set -u
cd "$(dirname "$0")/../.."
OUT=$(realpath -m "${OUT:?a directory for the results}")
W=/tmp/gpurec-h200/entry
rm -rf "$W"
mkdir -p "$OUT" "$W"
export XDG_CACHE_HOME=$W/cache
PATH=$PWD/bin:$PATH
flags=--gpu
if [ -n "${SIMULATE-}" ]; then flags=; fi
cc -std=gnu11 -O2 -o "$W/entry" testdata/programs/entry.c -ldl || exit 1
run() { gpurec run ${SIMULATE:+--simulate-gpu} -q -o "$W/$1.gpurec" -- "$W/entry" $flags >"$OUT/$1.out" 2>"$OUT/$1.err"; }

if [ -n "${SIMULATE-}" ]; then
	run bare # the simulated driver comes with gpurec alone
else
	timeout 60 "$W/entry" $flags >"$OUT/bare.out" 2>"$OUT/bare.err"
fi
bare=$?
rm -rf "$OUT/recorded.gpurec"
run recorded
recorded=$?
mv "$W/recorded.gpurec" "$OUT/"
gpuanalyze events --json -q "$OUT/recorded.gpurec" >"$W/events.jsonl"
gpuanalyze summary --json -q "$OUT/recorded.gpurec" >"$W/summary.json"
python3 testdata/h200/entry.py "$OUT/bare.out" "$OUT/recorded.out" "$W/events.jsonl" cuda/testdata/entry.txt "$W/summary.json" >"$OUT/entry.txt"
compared=$?
cat "$OUT/entry.txt" "$OUT/bare.err" "$OUT/recorded.err"
gpuanalyze verify "$OUT/recorded.gpurec" || compared=1
echo "exit $bare bare, $recorded recorded; comparison $compared"
rm -rf "$W"
[ $bare = 0 ] && [ $recorded = 0 ] && [ $compared = 0 ]
