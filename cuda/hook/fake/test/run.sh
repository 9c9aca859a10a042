#!/bin/sh
# Compiles the simulated driver and NVML, and runs their test.
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
lib="-fPIC -shared -fvisibility=hidden -Wl,-Bsymbolic"
[ $# -gt 0 ] || lib="$lib -Wl,-z,defs"

cd "$fake"
$cc $flags $lib -Wl,-soname,libcuda.so.1 -Wl,--version-script=cuda.map -o "$out/libcuda.so.1" \
	driver.c context.c memory.c host.c stream.c pool.c vmm.c entry.c heap.c sim.c -lpthread -ldl
$cc $flags $lib -Wl,-soname,libnvidia-ml.so.1 -Wl,--version-script=nvml.map -o "$out/libnvidia-ml.so.1" \
	nvml.c sim.c -lpthread -ldl

cd "$here"
$cc $flags -rdynamic -o "$out/fake_test" fake_test.c driver_rows.c memory_rows.c outside_rows.c \
	-L"$out" -l:libcuda.so.1 -lpthread -ldl
LD_LIBRARY_PATH=$out "$out/fake_test"
