#!/bin/bash
# What of a device's memory gpurec tracks, program by program, and that the
# programs compute and end the same with it as without. Run from the
# repository's root on a machine with a GPU, with bin/gpurec and bin/gpuanalyze
# built; needs python3 with PyTorch, CuPy and JAX, and cc with CUDA's headers.
#
#     OUT=/tmp/out testdata/h200/coverage.sh [PROGRAM…]
#
# Leaves the traces and coverage.txt in $OUT. Exit: 0 when every row holds.
set -u
cd "$(dirname "$0")/../.."
OUT=$(realpath -m "${OUT:?a directory for the results}")
W=/tmp/gpurec-h200
case $PWD/ in "$W"/*) echo "run this from elsewhere: $W is made anew" >&2; exit 2 ;; esac
rm -rf "$W"
mkdir -p "$OUT" "$W/programs"
cp testdata/h200/coverage.py "$W/programs"
P=$W/programs/coverage.py
export XDG_CACHE_HOME=$W/cache TF_CPP_MIN_LOG_LEVEL=3
PATH=$PWD/bin:$PATH
cd "$W"

cat >pluggable.cc <<'C'
#include <cuda_runtime_api.h>
#include <sys/types.h>
extern "C" void *pluggable_malloc(ssize_t size, int device, cudaStream_t stream)
{
	void *p = nullptr;
	cudaMalloc(&p, size);
	return p;
}
extern "C" void pluggable_free(void *p, ssize_t size, int device, cudaStream_t stream) { cudaFree(p); }
C
nvcc -shared -Xcompiler -fPIC -o pluggable.so pluggable.cc
export PLUGGABLE=$W/pluggable.so

programs=${*:-torch torch-expandable torch-async torch-graphs torch-compile torch-pluggable torch-profiler cupy-pool cupy-async cupy-managed jax-on-demand jax-preallocated jax-platform}
failed=0
# First all of them alone, side by side; then recorded, one after the other.
for p in $programs; do
	(
		python3 "$P" "$p" >"bare-$p.json" 2>"bare-$p.err"
		echo $? >"bare-$p.status"
	) &
done
wait
printf '%-17s %-8s %-7s %11s %11s %11s %11s %11s %8s  %s\n' program results status tracked inferred NVML others unexplained % verdict | tee "$OUT/coverage.txt"
for p in $programs; do
	gpurec run -o "$p.gpurec" -- python3 "$P" "$p" >"$p.json" 2>"$p.err"
	status=$?
	bare=$(cat "bare-$p.status")
	same=equal
	cmp -s "$p.json" "bare-$p.json" || same=differ
	[ -s "$p.json" ] || same=none
	gpuanalyze verify "$p.gpurec" >"$p.verify" 2>&1 || echo "$p: verify: exit $?, $(tail -n 1 "$p.verify")" >>"$OUT/notes.txt"
	gpuanalyze peak --by parts --json "$p.gpurec" 2>"$p.words" | python3 -c '
import json, sys
name, results, status, bare = sys.argv[1:]
d = json.load(sys.stdin)["devices"][0]
parts = d.get("parts") or {}
by = {}
for p in parts.get("parts", []):
    key = "inferred" if p.get("inferred") else p["part"]
    by[key] = by.get(key, 0) + p["bytes"]
others = sum(n for k, n in by.items() if k.startswith(("other ", "reserved")))
tracked = sum(by.get(k, 0) for k in ("used", "pool slack", "driver, outside pools"))
mib = lambda n: "%.1f MiB" % (n / 2**20)
nvml, unexplained = parts.get("sum", 0) - others, by.get("unexplained", 0)
share = 100 * unexplained / nvml if nvml else 100.0
ok = results == "equal" and status == bare
print("%-17s %-8s %-7s %11s %11s %11s %11s %11s %8.2f  %s" % (name, results, status + "=" + bare if status == bare else status + "!" + bare,
      mib(tracked), mib(by.get("inferred", 0)), mib(nvml), mib(others), mib(unexplained), share, "ok" if ok else "DIFFERS"))
sys.exit(not ok)' "$p" "$same" "$status" "$bare" | tee -a "$OUT/coverage.txt"
	[ "${PIPESTATUS[1]}" = 0 ] || failed=$((failed + 1))
	tail -n 3 "$p.err" | sed "s/^/$p: /" >>"$OUT/notes.txt"
	tail -n 4 "$p.words" | sed "s/^/$p: /" >>"$OUT/notes.txt"
done
echo "$failed program(s) differ" | tee -a "$OUT/coverage.txt"
cp -r ./*.gpurec ./*.json "$OUT"
exit $((failed > 0))
