#!/bin/bash
# CuPy's hooks on a real GPU: what CuPy's own tests assert of them holds, with
# gpurec as without; the trace has what they were told; and programs with ways of
# their own behave as without gpurec. Run from the repository's root, with
# bin/gpurec and bin/gpuanalyze built; needs python3 with CuPy.
#
#     OUT=/tmp/out testdata/h200/cupy_hooks.sh
#
# Leaves the traces, what was printed, and hooks.txt, the table, in $OUT. Exit: 0
# when every row is ok.
set -u
cd "$(dirname "$0")/../.."
OUT=$(realpath -m "${OUT:?a directory for the results}")
mkdir -p "$OUT"
rm -rf "$OUT/hooks" "$OUT/guests"
mkdir "$OUT/hooks"
PATH=$PWD/bin:$PATH
P=$PWD/testdata/h200
export PYTHONDONTWRITEBYTECODE=1
# For python -S, which does not find an environment's packages.
export GUEST_CUPY=${GUEST_CUPY:-$(python3 -c 'import cupy, os; print(os.path.dirname(os.path.dirname(cupy.__file__)))')}
cd "$OUT/hooks"

table() {
	local failed=0
	row() { # row WHAT STATUS: a line of the table
		local verdict=ok
		[ "$2" = 0 ] || verdict=differs failed=$((failed + 1))
		printf '%-70s %s\n' "$1" "$verdict"
	}
	python3 "$P/cupy_hooks.py" bare.raw >bare.jsonl 2>bare.err
	row "what CuPy's tests assert, without gpurec" $?
	gpurec run -o hooks.gpurec -- python3 "$P/cupy_hooks.py" recorded.raw >recorded.jsonl 2>recorded.err
	row "what CuPy's tests assert, with gpurec" $?
	cmp bare.jsonl recorded.jsonl
	row "what a hook is told, with gpurec and without" $?
	cmp bare.err recorded.err
	row "standard error, with gpurec and without" $?
	gpuanalyze events -q hooks.gpurec >events.txt && python3 "$P/cupy_hooks.py" --trace events.txt recorded.raw >trace.txt
	row "what a hook is told, and the trace's events" $?
	gpuanalyze verify hooks.gpurec >verify.txt 2>&1
	row "gpuanalyze verify" $?
	grep -h '"wrong": "' bare.jsonl recorded.jsonl | sed -E 's/.*"case": "(\w+)".*"wrong": (.*)\}/  \1: \2/'
	grep DIFFER trace.txt
	tail -n 2 trace.txt
	python3 "$P/cupy_guests.py" --compare "$OUT/guests"
	failed=$((failed + $?))
	return $((failed > 0))
}

table >"$OUT/hooks.txt" 2>&1
status=$?
cat "$OUT/hooks.txt"
exit $status
