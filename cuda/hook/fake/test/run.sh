#!/bin/sh
# Compiles the simulated driver and NVML, and runs their test and the programs
# of testdata/programs on them.
#
#   run.sh                 as they are used
#   run.sh -fsanitize=X    with a sanitizer in the libraries and the test
#
# Needs cc. Writes only to a directory of its own, which it removes.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
fake=$here/..
out=$(mktemp -d "${TMPDIR:-/tmp}/fake_test.XXXXXX")
trap 'rm -rf "$out"' EXIT
cc=${CC:-cc}
flags="-std=gnu11 -O2 -g -Wall -Wextra -Werror $*"
lib="-fPIC -shared -fvisibility=hidden"
[ $# -gt 0 ] || lib="$lib -Wl,-z,defs"

cd "$fake"
$cc $flags $lib -Wl,-soname,libcuda.so.1 -Wl,--version-script=cuda.map -o "$out/libcuda.so.1" \
	$(ls ./*.c | grep -v nvml.c) -lpthread -ldl
$cc $flags $lib -Wl,-soname,libnvidia-ml.so.1 -Wl,--version-script=nvml.map -o "$out/libnvidia-ml.so.1" \
	nvml.c sim.c -lpthread -ldl

cd "$here"
$cc $flags -rdynamic -o "$out/fake_test" fake_test.c driver_rows.c memory_rows.c reserve_rows.c outside_rows.c \
	-L"$out" -l:libcuda.so.1 -lpthread -ldl
LD_LIBRARY_PATH=$out
export LD_LIBRARY_PATH
"$out/fake_test"

cd "$here/../../../../testdata/programs"
for program in storm flavours fork oom faults ledger; do
	$cc $flags -o "$out/$program" $program.c -lpthread -ldl
done
$cc $flags -DLINKED -o "$out/flavours-linked" flavours.c -L"$out" -l:libcuda.so.1 -lpthread -ldl
cd "$out"

fail() {
	echo "FAIL $*"
	exit 1
}

# Every event is accounted for, and other threads' blocks are among the freed.
./storm --threads 4 --events 20000 --devices 2 >storm.out
tr ' ' '\n' <storm.out | awk -F= '
	{ v[$1] = $2 }
	END {
		if (v["allocs"] + v["frees"] + v["failed"] != 80000 || v["events"] != 80000) exit 1
		if (v["failed"] != 0 || v["live"] != v["allocs"] - v["frees"] || v["handed"] == 0) exit 1
		if (v["live_bytes"] <= 0 || v["peak_bound_bytes"] < v["live_bytes"]) exit 1
	}' || fail "storm: $(cat storm.out)"

# The same through each door, but for the pointers and the last line.
columns() {
	sed '$d' | cut -f 1-3,5-6
}
./flavours --door procaddress | columns >procaddress.out
./flavours --door dlsym | columns >dlsym.out
./flavours --door procaddress --per-thread | columns >per-thread.out
./flavours-linked --door linked | columns >linked.out
[ "$(wc -l <procaddress.out)" -eq 49 ] || fail "flavours: $(wc -l <procaddress.out) lines"
for door in dlsym per-thread linked; do
	cmp procaddress.out $door.out || fail "flavours: door $door differs"
done

./fork >fork.out || fail fork
[ "$(wc -l <fork.out)" -eq 4 ] || fail "fork: $(cat fork.out)"
GPUREC_SIM_MEMORY=3GiB,1GiB ./oom 100 >oom.out || fail oom
status=0
./ledger --log ledger.log --ms 50 --forks 3 --status 7 >ledger.out 2>&1 || status=$?
[ $status -eq 7 ] || fail "ledger: $(cat ledger.out)"
./faults >faults.out || fail "faults: $(cat faults.out)"
GPUREC_SIM_DEVICES=1 ./faults >faults1.out || fail "faults: $(cat faults1.out)"
echo "programs: storm, flavours through 4 doors, fork, oom, faults, ledger"
