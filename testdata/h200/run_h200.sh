#!/bin/bash
# Records real programs on a real GPU and compares with the frameworks' own
# numbers. Run from the repository's root, with bin/gpurec and bin/gpuanalyze
# built (make build); needs python3 with PyTorch and CuPy, and nvcc.
#
#     OUT=/tmp/out testdata/h200/run_h200.sh
#
# Leaves in $OUT:
#   log.txt        everything, in order
#   tables.txt     the comparisons; the last line says how many differ
#   train.gpurec cupy.gpurec flavours.gpurec steps.gpurec, and the .jsonl of each
#   reports.tar.gz what the programs printed, and the reports of the three traces
# Exit: 0 when every comparison agrees.
set -u
cd "$(dirname "$0")/../.."
OUT=$(realpath -m "${OUT:?a directory for the results}")
# The programs run from a folder that is the same on every machine, and gpurec
# caches there too: their paths are in the traces that are kept.
W=/tmp/gpurec-h200
H=$W/programs
R=$W/reports
case $PWD/ in "$W"/*) echo "run this from elsewhere: $W is made anew" >&2; exit 2 ;; esac
rm -rf "$W"
mkdir -p "$OUT" "$R" "$H"
cp testdata/h200/*.py testdata/programs/flavours.cu "$H"
export PYTHONUNBUFFERED=1 XDG_CACHE_HOME=$W/cache
PATH=$PWD/bin:$PATH
cd "$W"
: >"$OUT/tables.txt"
exec > >(tee "$OUT/log.txt") 2>&1
trap 'rm -rf "$W"' EXIT
failed=0

say() { printf '\n### %s (%ss)\n' "$*" "$SECONDS"; }

# run NAME COMMAND...: records it; what it prints goes to $R/NAME.jsonl.
run() {
	local name=$1 begin=$SECONDS
	shift
	say "record $name: $*"
	timeout 150 gpurec run -v -o "$W/$name.gpurec" -- "$@" >"$R/$name.jsonl"
	local rc=$?
	tail -n 2 "$R/$name.jsonl"
	echo "exit $rc, $((SECONDS - begin)) s"
	[ $rc = 0 ] || failed=$((failed + 1))
	gpuanalyze events "$W/$name.gpurec" >"$W/$name.txt" || failed=$((failed + 1))
	gpuanalyze verify "$W/$name.gpurec"
}

compare() {
	say "compare $*"
	python3 $H/compare.py "$@" | tee -a "$OUT/tables.txt"
	[ "${PIPESTATUS[0]}" = 0 ] || failed=$((failed + 1))
}

# keep NAME [AS]: the trace, and what the program printed.
keep() {
	rm -rf "$OUT/${2:-$1}.gpurec"
	cp -r "$W/$1.gpurec" "$OUT/${2:-$1}.gpurec"
	chmod -R u=rwX,go=rX "$OUT/${2:-$1}.gpurec"
	cp "$R/$1.jsonl" "$OUT/${2:-$1}.jsonl"
}

reports() {
	local name=$1
	for report in summary lines contexts devices; do
		gpuanalyze $report "$W/$name.gpurec" >"$R/$name.$report.txt" 2>"$R/$name.$report.err"
		echo "$report $name: exit $?, $(wc -l <"$R/$name.$report.txt") lines; $(tail -n 1 "$R/$name.$report.err")"
	done
	gpuanalyze lines --at peak "$W/$name.gpurec" >"$R/$name.lines-peak.txt"
}

say "machine"
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
uname -srm
python3 -c 'import sys, torch, cupy; print(sys.version.split()[0], "torch", torch.__version__, "cupy", cupy.__version__)'
nvcc --version | tail -n 2
gpurec info

# The overhead, roughly: the same training bare and recorded, imports included.
say "bare: train.py --steps 200"
begin=$SECONDS
python3 $H/train.py --steps 200 >"$R/bare.jsonl"
echo "$((SECONDS - begin)) s"

run native python3 $H/train.py --steps 200
compare torch "$W/native.txt" "$R/native.jsonl"
gpuanalyze contexts --json "$W/native.gpurec" >"$W/native.contexts.json"
compare contexts "$W/native.contexts.json" "$R/native.jsonl"

PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True run expandable python3 $H/train.py --steps 50
compare torch "$W/expandable.txt" "$R/expandable.jsonl"

PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync run async python3 $H/train.py --own 300 --steps 10
compare async "$W/async.txt" "$R/async.jsonl"

run cupy python3 $H/cupy_functions.py "$R/cupy"
compare cupy "$W/cupy.txt" "$R/cupy.jsonl"
for name in creation arithmetic matmul reductions sorting; do
	gpuanalyze lines --scope $name "$W/cupy.gpurec" >"$R/cupy/$name.ours.txt"
	compare text "$R/cupy/$name.txt" "$R/cupy/$name.ours.txt"
done

for kind in static shared; do
	nvcc -cudart $kind -o "$W/flavours-$kind" $H/flavours.cu -lcuda || failed=$((failed + 1))
	run flavours-$kind "$W/flavours-$kind"
	compare flavours "$W/flavours-$kind.txt" "$R/flavours-$kind.jsonl"
done

# Two to keep: the same program with fewer steps, and one of a size at which
# the bytes of an event can be measured.
run steps python3 $H/train.py --layers 12 --steps 105
compare torch "$W/steps.txt" "$R/steps.jsonl"
run train python3 $H/train.py --steps 20
compare torch "$W/train.txt" "$R/train.jsonl"
reports train
reports cupy
reports flavours-static

say "keep"
keep train
keep cupy
keep flavours-static flavours
keep steps
tar -C "$W" -czf "$OUT/reports.tar.gz" reports
du -sh "$W"/*.gpurec "$OUT"/*
echo "$failed step(s) failed or differ" | tee -a "$OUT/tables.txt"
sleep 1 # let tee write the last lines
exit $((failed > 0))
