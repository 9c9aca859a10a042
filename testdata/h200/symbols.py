"""Compares a symbolized trace with addr2line, stack by stack.

    symbols.py RAW.txt NAMED.txt MODULE

Both are what gpuanalyze events prints: of a trace recorded with --symbolize 0, and
of a symbolized copy of it. Prints how many stacks and frames of MODULE were
compared, then the first that differ. Exit: 0 when all agree.
"""

import re
import subprocess
import sys

FRAME = re.compile(r'^frame (\d+) (\w+) "((?:[^"\\]|\\.)*)" (\d+) "((?:[^"\\]|\\.)*)"(?: module="([^"]*)")?(?: build_id="?([0-9a-f]*)"?)?(?: address=(\w+))?')
HAS_LINE = re.compile(r"[^?]:[1-9]\d*$")  # addr2line puts question marks for what it does not know
STACK = re.compile(r"^stack (\d+) (\d+) (\d+)$")


def read(path: str) -> tuple[dict, dict]:
    """The frames and the stacks of a text twin, by number."""
    frames, stacks = {}, {}
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            if m := FRAME.match(line):
                frames[int(m[1])] = {"kind": m[2], "file": m[3], "line": int(m[4]), "function": m[5], "module": m[6], "address": int(m[8] or "0", 0)}
            elif m := STACK.match(line):
                stacks[int(m[1])] = (int(m[2]), int(m[3]))
    return frames, stacks


def walk(frames: dict, stacks: dict, stack: int) -> list[dict]:
    """A stack's frames, innermost first."""
    out = []
    while stack:
        stack, frame = stacks[stack]
        out.append(frames[frame])
    return out


def last(function: str) -> str:
    """A function's own name: tools differ in what they put around it."""
    function = re.sub(r"\[clone .*", "", function)
    depth, out = 0, ""
    for c in function:
        depth += c in "<("
        if depth == 0:
            out += c
        depth -= c in ">)"
    return out.split("::")[-1].split(" ")[-1].strip()


def addr2line(module: str, addresses: list[int]) -> dict[int, list[tuple[str, str]]]:
    """Of each address what it lies in, innermost first: (file:line, function)."""
    text = subprocess.run(["addr2line", "-a", "-f", "-i", "-C", "-e", module], input="\n".join(map(hex, addresses)), capture_output=True, text=True, check=True).stdout
    out, at, lines = {}, 0, text.splitlines()
    while at < len(lines):
        if lines[at].startswith("0x"):
            current = out.setdefault(int(lines[at], 16), [])
            at += 1
            continue
        file, _, line = lines[at + 1].split(" (")[0].rpartition(":")
        current.append((f"{file.rsplit('/', 1)[-1]}:{line}", last(lines[at])))
        at += 2
    return out


def main(raw: str, named: str, module: str) -> int:
    raw_frames, raw_stacks = read(raw)
    frames, stacks = read(named)
    addresses = sorted({f["address"] for f in raw_frames.values() if f["module"] == module})
    known = addr2line(module, addresses)
    compared = differ = 0
    for stack in raw_stacks:
        want = [x for f in walk(raw_frames, raw_stacks, stack) if f["module"] == module for x in known[f["address"]] if HAS_LINE.search(x[0])]
        got = [(f"{f['file'].rsplit('/', 1)[-1]}:{f['line']}", last(f["function"])) for f in walk(frames, stacks, stack) if f["module"] == module and f["line"]]
        compared += len(want)
        if got != want:
            differ += 1
            if differ <= 3:
                print(f"stack {stack}\n  {got}\naddr2line\n  {want}")
    print(f"{len(raw_stacks)} stacks, {compared} frames with a line, {differ} stacks differ")
    return 0 if compared and not differ else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:4]))
