#!/bin/bash
# Names of native frames: a CUDA C++ program at -O2 against addr2line, the same
# trace named elsewhere from a copy of the program, without debug information, and
# PyTorch's training with native frames. Run from the repository's root or an
# unpacked kit, with bin/gpurec and bin/gpuanalyze; needs addr2line and nvcc, and
# python3 with PyTorch for its rows. With SIMULATE=1 the GPU is the simulated one,
# and COMPILE="g++ …" compiles.
#
#     OUT=/tmp/out testdata/h200/symbols.sh
#
# Leaves in $OUT: symbols.txt, the table (ok or differs), the trees, the traces.
# Exit: 0 when no row differs.
set -u
cd "$(dirname "$0")/../.."
OUT=$(realpath -m "${OUT:?a directory for the results}")
HERE=$PWD/testdata/h200
PATH=$PWD/bin:$PATH
W=$(mktemp -d)
mkdir -p "$OUT" "$W/job" "$W/elsewhere"
trap 'rm -rf "$W"' EXIT
: >"$OUT/symbols.txt"
failed=0
record=(gpurec run -q ${SIMULATE:+--simulate-gpu})

# row WHAT STATUS [NUMBER]
row() {
	local verdict=ok
	[ "$2" = 0 ] || { verdict=differs; failed=$((failed + 1)); }
	printf '%-78s %-8s %s\n' "$1" "$verdict" "${3:-}" | tee -a "$OUT/symbols.txt"
}

cp "$HERE/symbols.cu" "$W/job"
(cd "$W/job" && ${COMPILE:-nvcc -O2 -g -Xcompiler -fomit-frame-pointer -Xlinker --build-id} symbols.cu -o solver ${LIBS:-}) || exit 1

# 1. against addr2line
"${record[@]}" --stacks native --symbolize 0 -o "$OUT/raw.gpurec" -- "$W/job/solver"
row "the program runs, recorded" $?
gpuanalyze symbolize -q -o "$OUT/named.gpurec" "$OUT/raw.gpurec" >"$OUT/modules.txt"
row "symbolize" $?
gpuanalyze events -q "$OUT/raw.gpurec" >"$W/raw.txt"
gpuanalyze events -q "$OUT/named.gpurec" >"$W/named.txt"
said=$(python3 "$HERE/symbols.py" "$W/raw.txt" "$W/named.txt" "$W/job/solver")
row "functions, files, lines, inlined calls: addr2line's" $? "$(tail -n 1 <<<"$said")"
head -n -1 <<<"$said" | tee -a "$OUT/symbols.txt"
gpuanalyze lines "$OUT/named.gpurec" >"$OUT/cpp-tree.txt" 2>/dev/null

# 2. on another machine: the program is not where it was
cp -r "$OUT/raw.gpurec" "$W/carried.gpurec"
mv "$W/job/solver" "$W/elsewhere/solver"
gpuanalyze symbolize "$W/carried.gpurec" 2>/dev/null | grep -q "solver"
gpuanalyze lines --hide "*cuda*" --hide "libc.so*" "$W/carried.gpurec" 2>/dev/null | grep -q "solver+0x"
row "without the program its frames stay addresses" $?
gpuanalyze symbolize -q --search "$W/elsewhere" "$W/carried.gpurec" >/dev/null
gpuanalyze lines "$W/carried.gpurec" 2>/dev/null | cmp -s - "$OUT/cpp-tree.txt"
row "with a copy of it elsewhere the tree is the same" $?

# 3. stripped, debug file by build id
cp -r "$OUT/raw.gpurec" "$W/split.gpurec"
id=$(readelf -n "$W/elsewhere/solver" | sed -n 's/.*Build ID: //p')
mkdir -p "$W/debug/.build-id/${id:0:2}"
objcopy --only-keep-debug "$W/elsewhere/solver" "$W/debug/.build-id/${id:0:2}/${id:2}.debug"
gpuanalyze symbolize -q --debug-dir "$W/debug" "$W/split.gpurec" >/dev/null
gpuanalyze lines "$W/split.gpurec" 2>/dev/null | cmp -s - "$OUT/cpp-tree.txt"
row "with the debug file alone, by build id, the tree is the same" $?

# 4. PyTorch, named as the recording ends
if python3 -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
	begin=$(date +%s%N)
	"${record[@]}" --symbolize 0 -o "$OUT/torch-raw.gpurec" -- python3 "$HERE/train.py" --steps 20 >/dev/null
	row "PyTorch's training, recorded" $? "$((($(date +%s%N) - begin) / 1000000)) ms with its start"
	before=$(gpuanalyze lines --at peak "$OUT/torch-raw.gpurec" 2>&1 >/dev/null | grep "no line")
	begin=$(date +%s%N)
	gpuanalyze symbolize "$OUT/torch-raw.gpurec" >>"$OUT/modules.txt" 2>"$W/said"
	row "symbolize" $? "$((($(date +%s%N) - begin) / 1000000)) ms; $(cat "$W/said")"
	after=$(gpuanalyze lines --at peak "$OUT/torch-raw.gpurec" 2>&1 >"$OUT/torch-tree.txt" | grep "no line")
	printf 'before: %s\nafter:  %s\n' "$before" "$after" | tee -a "$OUT/symbols.txt"
	gpuanalyze lines --at peak --stacks both "$OUT/torch-raw.gpurec" >"$OUT/torch-both.txt" 2>/dev/null
	grep -A 20 "pt_autograd" "$OUT/torch-tree.txt" | grep -q "libtorch.*:torch::autograd"
	row "the backward pass has native frames with names" $?
	# the same within the end of a recording
	"${record[@]}" -o "$OUT/torch-end.gpurec" -- python3 "$HERE/train.py" --steps 20 >/dev/null
	gpuanalyze symbolize --json "$OUT/torch-end.gpurec" 2>&1 >/dev/null | tee -a "$OUT/symbols.txt"
	gpuanalyze lines --at peak "$OUT/torch-end.gpurec" 2>/dev/null | grep -q "libtorch.*:torch::autograd"
	row "named as the recording ends, within 2 s of CPU" $?
else
	echo "no PyTorch with a GPU here: its rows are left out" | tee -a "$OUT/symbols.txt"
fi
head -n 40 "$OUT/cpp-tree.txt"
[ ! -e "$OUT/torch-tree.txt" ] || head -n 40 "$OUT/torch-tree.txt" | cut -c 1-200
cat "$OUT/modules.txt"
echo "$failed row(s) differ" | tee -a "$OUT/symbols.txt"
exit $((failed > 0))
