#!/bin/bash
# CuPy's LineProfileHook against gpurec's on a real GPU, byte by byte. Run from
# the repository's root, with bin/gpurec and bin/gpuanalyze built; needs python3
# with CuPy. CUPY_CACHE_DIR keeps CuPy's kernels, which take most of the time.
#
#     OUT=/tmp/out testdata/h200/cupy_lines.sh
#
# Leaves the trace, every text and lines.txt, the table, in $OUT. Exit: 0 when
# no text differs.
set -u
cd "$(dirname "$0")/../.."
OUT=$(realpath -m "${OUT:?a directory for the results}")
rm -rf "$OUT/lines" "$OUT/lines.gpurec"
mkdir -p "$OUT"
PATH=$PWD/bin:$PATH
P=$PWD/testdata/h200
L=$OUT/lines

table() {
	printf '%-20s %6s %28s %14s %14s  %s\n' stretch lines "used, acquired" "lines --scope" "print_report" verdict
	local failed=0 bad=0 name depth kind verdict root
	if ! timeout 90 gpurec run -q -o "$OUT/lines.gpurec" -- python3 "$P/cupy_lines.py" "$L"; then
		echo "cupy_lines.py failed"
		bad=1
	fi
	gpuanalyze verify "$OUT/lines.gpurec" >"$OUT/lines.verify" 2>&1 || { echo "verify: $(tail -n 1 "$OUT/lines.verify")" && bad=1; }
	while read -r name; do
		local scope=0 live=0
		for depth in 0 1 2 3 4 5 6; do
			gpuanalyze lines --scope "$name" --max-depth $depth "$OUT/lines.gpurec" >"$L/$name.$depth.scope" 2>"$L/$name.$depth.err"
			cmp -s "$L/$name.$depth.cupy" "$L/$name.$depth.scope" && scope=$((scope + 1))
			cmp -s "$L/$name.$depth.cupy" "$L/$name.$depth.live" && live=$((live + 1))
		done
		root=$(sed -n '1s/_root (\(.*\))/\1/p' "$L/$name.0.cupy")
		verdict=ok
		# A text without a byte would equal any other such text.
		case "$scope $live $root" in "7 7 0.00B,"* | "7 7 ") verdict=differs ;; "7 7 "*) ;; *) verdict=differs ;; esac
		[ $verdict = ok ] || failed=$((failed + 1))
		printf '%-20s %6d %28s %14s %14s  %s\n' "$name" "$(wc -l <"$L/$name.0.cupy")" "$root" "$scope of 7" "$live of 7" $verdict
	done <"$L/stretches"
	[ "$(wc -l <"$L/stretches")" = 18 ] || { echo "18 stretches were to be compared" && bad=1; }
	echo "$failed stretch(es) differ"
	[ $failed = 0 ] && [ $bad = 0 ]
}

table >"$OUT/lines.txt" 2>"$OUT/lines.log"
status=$?
cat "$OUT/lines.txt" "$OUT/lines.log"
exit $status
