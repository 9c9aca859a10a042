#!/bin/bash
# Makes the files of this folder whose tools not every machine has: dwz, clang, and
# llvm's packer of split units. GCC 12, clang 14 and dwz 0.15 made those that are here.
#
#     testdata/forms/make.sh
#
# gcc.txt and clang.txt are what llvm-symbolizer says of the same programs, plain.
set -eu
cd "$(dirname "$0")"
W=$(mktemp -d)
trap 'rm -rf "$W"' EXIT
here=$PWD
cp pool.h one.cc two.cc "$W"
cd "$W"
flags=(-O2 -fno-exceptions -fno-asynchronous-unwind-tables -fcf-protection=none -ffile-prefix-map="$W"=/src -nostdlib -static)
link=(-Wl,--build-id -Wl,-z,noseparate-code -Wl,-z,norelro)

# build COMPILER PROGRAM FLAGS...
build() {
	local compiler=$1 program=$2
	shift 2
	$compiler "${flags[@]}" "$@" -c one.cc -o one.o
	$compiler "${flags[@]}" "$@" -c two.cc -o two.o
	$compiler "${flags[@]}" "${link[@]}" "$@" one.o two.o -o "$program"
}

# answers PROGRAM: of every third byte of its functions what llvm-symbolizer says, which names lambdas
# where addr2line does not
answers() {
	nm -S "$1" | while read -r at size kind _; do
		case $kind in t | T) seq $((0x$at)) 3 $((0x$at + 0x$size - 1)) ;; esac
	done | sort -n | xargs printf '%#x\n' | llvm-symbolizer --obj="$1" --addresses --functions=linkage --no-demangle --output-style=GNU
}

build g++ plain -g
answers plain >"$here/gcc.txt"
for v in 4 5; do
	build g++ dwz$v -gdwarf-$v
	cp dwz$v also
	dwz $([ $v = 5 ] && echo --dwarf-5) -m both$v.debug -M both$v.debug dwz$v also
	cp dwz$v both$v.debug "$here"
done
build clang++ clang -g
answers clang >"$here/clang.txt"
for v in 4 5; do
	build clang++ split$v -gsplit-dwarf -gdwarf-$v
	llvm-dwp one.dwo two.dwo -o split$v.dwp
	cp split$v split$v.dwp "$here"
done
cp one.dwo two.dwo "$here"
chmod -x "$here"/{dwz,split}[45]
