#!/bin/bash
# Puts together the folder that measures on a GPU machine: no Go, no make and
# no network there. Run from the repository's root, after make build.
#
#     benchmarks/gpu/kit.sh .build/gpu-kit
#
# There: .build/gpu-kit/run. Needed there: python3 with PyTorch and CuPy; a C++
# compiler for the finest of the tables, which is coarser without one.
set -euo pipefail
kit=$1
rm -rf "$kit"
mkdir -p "$kit"/{bin,tools,benchmarks/{c,gpu},testdata/h200}
(cd benchmarks && CGO_ENABLED=0 "${GO:-go}" build -trimpath -o ../.build/kit-benchmarks .)
mv .build/kit-benchmarks "$kit/bin/benchmarks"
cp bin/gpurec bin/gpuanalyze "$kit/bin/"
"$kit/bin/benchmarks" -root . -tools "$kit/tools" -build
cp benchmarks/c/stack.py "$kit/benchmarks/c/"
cp benchmarks/gpu/*.py benchmarks/gpu/torch.cpp "$kit/benchmarks/gpu/"
cp -r testdata/h200/train.gpurec "$kit/testdata/h200/"
cat >"$kit/run" <<'RUN'
#!/bin/bash
# Measures everything, under 8 minutes; further arguments as of bin/benchmarks
# (-run REGEXP, -quick, -list). The results go to stdout and to
# ${OUT:-this folder}/gpu-bench.txt.
set -u
kit=$(cd "$(dirname "$0")" && pwd)
out=${OUT:-$kit}
export XDG_CACHE_HOME=${XDG_CACHE_HOME:-/tmp/gpurec-kit-cache} PYTHONDONTWRITEBYTECODE=1
mkdir -p "$XDG_CACHE_HOME"
exec "$kit/bin/benchmarks" -gpu -root "$kit" -tools "$kit/tools" -budget 420s -o "$out/gpu-bench.txt" "$@"
RUN
chmod +x "$kit/run"
du -sh "$kit"
