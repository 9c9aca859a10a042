#!/bin/bash
# Programs that are killed, or that run out of memory, on a real GPU: the trace
# answers for the last moment, and the exit status is the program's own. Run
# from the repository's root, with bin/gpurec and bin/gpuanalyze built; needs
# python3 with PyTorch.
#
#     OUT=/tmp/out testdata/h200/killed.sh
#
# Leaves the traces and the table in $OUT. Exit: 0 when every row holds.
set -u
cd "$(dirname "$0")/../.."
OUT=$(realpath -m "${OUT:?a directory for the results}")
W=/tmp/gpurec-h200
case $PWD/ in "$W"/*) echo "run this from elsewhere: $W is made anew" >&2; exit 2 ;; esac
rm -rf "$W"
mkdir -p "$OUT" "$W/programs"
cp testdata/h200/killed.py "$W/programs"
P=$W/programs/killed.py
export XDG_CACHE_HOME=$W/cache
PATH=$PWD/bin:$PATH
cd "$W"
: >"$OUT/killed.txt"
failed=0

# row WHAT GOT WANTED: one line of the table.
row() {
	local verdict=ok
	[ "$2" = "$3" ] || { verdict=differs failed=$((failed + 1)); }
	printf '%-74s %14s %14s  %s\n' "$1" "$2" "$3" "$verdict" | tee -a "$OUT/killed.txt"
}

# end TRACE: used bytes that lines has at the end, of all devices.
end() {
	gpuanalyze lines --at end --json "$1" 2>"$1.err" | python3 -c 'import json, sys; print(sum(t["used"] for t in json.load(sys.stdin)["trees"]))'
}

# last TRACE: PyTorch's own sum in its last event.
last() {
	gpuanalyze events -q "$1" | python3 -c '
import re, sys
last = "none"
for line in sys.stdin:
    if " api=torch " in line:
        m = re.search(r" allocated=(\d+)", line)
        if m:
            last = m[1]
print(last)'
}

for how in killed-by-itself out-of-memory; do
	python3 "$P" $how "$W/bare.number" >"$W/bare.out" 2>"$W/bare.err"
	bare=$?
	gpurec run -o "$W/$how.gpurec" -- python3 "$P" $how "$W/$how.number" >"$W/$how.out" 2>"$W/$how.err"
	row "$how: exit status, recorded and bare" $? $bare
	row "$how: standard output, recorded and bare" "$(md5sum <"$W/$how.out" | cut -c1-12)" "$(md5sum <"$W/bare.out" | cut -c1-12)"
	# The message of out of memory names the pid and bytes free; the rest is equal.
	row "$how: standard error, recorded and bare" \
		"$(sed -E 's/[0-9.]+ (GiB|MiB|KiB)/N/g; s/[Pp]rocess [0-9]+/process N/g' "$W/$how.err" | md5sum | cut -c1-12)" \
		"$(sed -E 's/[0-9.]+ (GiB|MiB|KiB)/N/g; s/[Pp]rocess [0-9]+/process N/g' "$W/bare.err" | md5sum | cut -c1-12)"
	row "$how: used in lines --at end, and in PyTorch's last event" "$(end "$W/$how.gpurec")" "$(last "$W/$how.gpurec")"
	gpuanalyze verify "$W/$how.gpurec" >"$W/$how.verify" 2>&1
	row "$how: verify's exit status" $? 0
done
# Nothing runs after SIGKILL, so the last moment is the program's own too.
row "killed-by-itself: used in lines --at end, and memory_allocated() there" \
	"$(end "$W/killed-by-itself.gpurec")" "$(cat "$W/killed-by-itself.number")"
row "out-of-memory: failures that oom lists" "$(gpuanalyze oom "$W/out-of-memory.gpurec" 2>/dev/null | grep -c '^OUT OF MEMORY')" 1

# Ten kills from outside at other moments, the last steps of each.
for i in 1 2 3 4 5 6 7 8 9 10; do
	t=$W/outside-$i.gpurec
	rm -f "$W/outside.number"
	gpurec run -o "$t" -- python3 "$P" killed-from-outside "$W/outside.number" >/dev/null 2>&1 &
	run=$!
	until [ -s "$W/outside.number" ]; do sleep 0.05; done
	sleep 0.$((RANDOM % 9 + 1))
	kill -KILL "$(pgrep -P $run -f killed-from-outside | head -n 1)"
	wait $run
	row "killed-from-outside $i: exit status" $? 137
	row "killed-from-outside $i: used in lines --at end, and in PyTorch's last event" "$(end "$t")" "$(last "$t")"
done

# gpurec killed: the program goes on to its end.
gpurec run -o "$W/recorder.gpurec" -- python3 "$P" killed-from-outside "$W/alone.number" >/dev/null 2>&1 &
run=$!
until [ -s "$W/alone.number" ]; do sleep 0.05; done
program=$(pgrep -P $run -f killed-from-outside | head -n 1)
kill -KILL $run
wait $run 2>/dev/null
rm -f "$W/alone.number"
for _ in $(seq 100); do [ -s "$W/alone.number" ] && break; sleep 0.05; done
row "gpurec killed: the program trains on" "$([ -s "$W/alone.number" ] && echo yes || echo no)" yes
kill -TERM "$program"
sleep 4 # repair wants to be sure that nobody records
gpuanalyze lines --at end "$W/recorder.gpurec" >/dev/null 2>"$W/recorder.err"
row "gpurec killed: lines answers, partial" $? 3
gpuanalyze repair "$W/recorder.gpurec" -o "$W/repaired.gpurec" >/dev/null 2>&1
row "gpurec killed: repair's exit status" $? 0

cat "$W/recorder.err"
gpuanalyze oom "$W/out-of-memory.gpurec" 2>&1 | head -n 12
cp -r "$W"/*.gpurec "$OUT"
echo "$failed row(s) differ" | tee -a "$OUT/killed.txt"
exit $((failed > 0))
