#!/bin/bash
# Native stacks over the real driver: a C++ program's against the compiler's own
# unwinder, a CUDA runtime program's, and which share of PyTorch's bytes has frames
# with and without them. Run from the repository's root on a machine with a GPU,
# with bin/gpurec and bin/gpuanalyze built; needs g++, nvcc and python3 with PyTorch.
#
#     OUT=/tmp/out testdata/h200/native.sh [PYTHON-TRAINING-STEPS]
#
# Leaves traces, reports and native.txt, the table, in $OUT. Exit: 0 when no row differs.
set -u
cd "$(dirname "$0")/../.."
OUT=$(realpath -m "${OUT:?a directory for the results}")
STEPS=${1:-5}
mkdir -p "$OUT"
export XDG_CACHE_HOME=$OUT/cache PYTHONUNBUFFERED=1
PATH=$PWD/bin:$PATH
root=$PWD
cd "$OUT" || exit 2
: >native.txt
failed=0

# record NAME FLAGS... -- COMMAND...: a trace and its text twin; what the program prints goes to NAME.out.
record() {
	local name=$1
	shift
	rm -rf "$name.gpurec"
	timeout 60 gpurec run -o "$name.gpurec" --sample-interval 0 --on-full wait --lane-size 16MiB "$@" >"$name.out" 2>"$name.err" ||
		{ echo "$name: exit $?: $(tail -n 1 "$name.err")  differs" | tee -a native.txt; failed=$((failed + 1)); }
	gpuanalyze events "$name.gpurec" >"$name.txt" 2>>"$name.err"
}
table() {
	python3 "$root/testdata/h200/native.py" "$@" | tee -a native.txt
	[ "${PIPESTATUS[0]}" = 0 ] || failed=$((failed + 1))
}

g++ -std=gnu++20 -O2 -fomit-frame-pointer -o unwind "$root/cuda/testdata/unwind.cpp" -ldl -lpthread || exit 2
gcc -O2 -shared -fPIC -o one.so "$root/cuda/testdata/through.c" || exit 2
gcc -O2 -shared -fPIC -DN=9 -o two.so "$root/cuda/testdata/through.c" || exit 2
record cpp --stacks native --max-frames 512 --symbolize 0 -- "$OUT/unwind" random 1000 threads signals exceptions coroutine closing "$OUT/one.so" twins "$OUT/one.so" "$OUT/two.so"
table unwound cpp.txt cpp.out

if nvcc -o flavours "$root/testdata/programs/flavours.cu" -lcuda 2>nvcc.err; then
	record flavours --symbolize 30s -- "$OUT/flavours"
	table reaches flavours.txt main
	gpuanalyze lines --at peak flavours.gpurec >flavours.lines 2>&1
else
	echo "no nvcc: the CUDA runtime program is left out" | tee -a native.txt
fi

if python3 -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
	for stacks in python auto both; do
		record "torch-$stacks" --stacks $stacks --symbolize 5s -- python3 "$root/testdata/h200/train.py" --steps "$STEPS" --layers 4
		gpuanalyze lines "torch-$stacks.gpurec" >"torch-$stacks.lines" 2>"torch-$stacks.words"
		# Under a thread without Python the view says that it leaves frames out.
		gpuanalyze lines --stacks python "torch-$stacks.gpurec" 2>/dev/null | grep -v '^ *\[no python frame\]' >"torch-$stacks.python"
		echo "PyTorch, --stacks $stacks: $(grep -h 'no line' "torch-$stacks.words" | tail -n 1)" | tee -a native.txt
		[ $stacks = python ] || table torch "torch-$stacks.txt"
	done
	for stacks in auto both; do
		table same "Python's view of $stacks is that of python alone (lines)" torch-python.python "torch-$stacks.python"
	done
	# The program's own frames of the backward pass, by name.
	gpuanalyze lines --stacks native --max-depth 12 torch-auto.gpurec 2>/dev/null | grep -A12 pt_autograd | head -n 13
else
	echo "no PyTorch with a GPU: left out" | tee -a native.txt
fi
echo "$failed of the above differ" | tee -a native.txt
exit $((failed > 0))
