#!/bin/bash
# Stacks of a Go program that takes memory through cgo, over the real driver: every
# frame against what Go's runtime says at the same moment. Run from the repository's
# root or an unpacked kit, with bin/gpurec and bin/gpuanalyze; needs python3, and no
# Go: the program is built elsewhere, by
#
#     CGO_ENABLED=1 go build -o gs ./cuda/testdata/gostacks
#
# on a system whose C library is no newer. With SIMULATE=1 the GPU is the simulated one.
#
#     OUT=/tmp/out testdata/h200/gocgo.sh PROGRAM
#
# Leaves in $OUT: gocgo.txt, the table (ok or differs), the tree, the traces.
# Exit: 0 when no row differs.
set -u
program=$(realpath "${1:?the program}")
cd "$(dirname "$0")/../.."
OUT=$(realpath -m "${OUT:?a directory for the results}")
HERE=$PWD/testdata/h200
PATH=$PWD/bin:$PATH
mkdir -p "$OUT"
: >"$OUT/gocgo.txt"
failed=0

# row WHAT STATUS [NUMBER]
row() {
	local verdict=ok
	[ "$2" = 0 ] || { verdict=differs; failed=$((failed + 1)); }
	printf '%-78s %-8s %s\n' "$1" "$verdict" "${3:-}" | tee -a "$OUT/gocgo.txt"
}

# record NAME STACKS COMMAND...: NAME.gpurec and NAME.out
record() {
	local name=$1 stacks=$2
	shift 2
	rm -rf "$OUT/$name.gpurec"
	timeout 300 gpurec run -q ${SIMULATE:+--simulate-gpu} --stacks "$stacks" --max-frames 512 --on-full wait --symbolize 0 -o "$OUT/$name.gpurec" -- "$@" >"$OUT/$name.out"
}

# compare WHAT NAME [go]
compare() {
	local said status
	gpuanalyze symbolize -q "$OUT/$2.gpurec" >"$OUT/$2.modules"
	gpuanalyze events -q "$OUT/$2.gpurec" >"$OUT/$2.txt"
	said=$(python3 "$HERE/gocgo.py" "$OUT/$2.txt" "$OUT/$2.out" "${@:3}")
	status=$?
	row "$1" $status
	tee -a "$OUT/gocgo.txt" <<<"$said"
}

GOGC=1 record go auto "$program" random 1000 panics locked threads deep 300
row "the program runs, recorded, collecting garbage at each turn" $?
compare "functions, files, lines, inlined calls, C in between: Go's own" go

strip -o "$OUT/gs" "$program" 2>/dev/null || cp "$program" "$OUT/gs"
record stripped auto "$OUT/gs" random 200 panics threads
row "the same stripped" $?
compare "its Go frames, by Go's own table" stripped go

record stress auto "$program" stress 20s
row "64 goroutines, calls back into Go, for 20 s" $? "$(cat "$OUT/stress.out")"
gpuanalyze verify "$OUT/stress.gpurec" >"$OUT/verify.txt" 2>&1
row "verify" $?
gpuanalyze events -q "$OUT/stress.gpurec" | grep -c '"\[outer frames left out\]"' >"$OUT/cut.txt"
row "no stack of it is cut" "$(cat "$OUT/cut.txt")"

record small auto "$program" locked threads
gpuanalyze symbolize -q "$OUT/small.gpurec" >/dev/null
gpuanalyze lines "$OUT/small.gpurec" >"$OUT/tree.txt" 2>/dev/null
[ "$(sed -n 2p "$OUT/tree.txt" | grep -c 'main\.')" = 1 ] && ! grep -q -E 'runtime\.|_cgo|_Cfunc_|\[thread gs\]' "$OUT/tree.txt"
row "the tree begins with the program's functions and has none of the runtime's" $?
head -n 40 "$OUT/tree.txt"
echo "$failed row(s) differ" | tee -a "$OUT/gocgo.txt"
exit $((failed > 0))
