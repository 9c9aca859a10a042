"""Compares the stacks that the hook recorded with those that stacks.py printed.

stdin: {"expected": what stacks.py printed,
        "codes": [{file, file_unit, name, name_unit, first, table}, ...],   texts and table in hex
        "recorded": {size: {"dropped": n, "frames": [[code, instruction], ...]}}}   outermost first

Lines are decoded by this interpreter, which must be the one that was recorded,
from a code object with the recorded table.
"""

import dis
import functools
import json
import sys

MOST_BYTES = 4096  # of a text; longer ones are cut
CODING = {0: "utf-8", 1: "latin-1", 2: "utf-16-le", 4: "utf-32-le"}

given = json.load(sys.stdin)
expected, codes, recorded = given["expected"], given["codes"], given["recorded"]


def text(data, unit):
    return bytes.fromhex(data).decode(CODING[unit], "surrogatepass" if unit > 1 else "strict")


def cut(s):
    """A text as it travels: in the narrowest unit that has all its characters."""
    widest = max(map(ord, s), default=0)
    return s[: MOST_BYTES // (1 if widest < 1 << 8 else 2 if widest < 1 << 16 else 4)]


@functools.lru_cache(None)
def lines(number):
    """(begin, end, line) of a code object's instructions."""
    of, code = codes[number], (lambda: 0).__code__
    table = bytes.fromhex(of["table"])
    if sys.version_info >= (3, 10):
        return list(code.replace(co_firstlineno=of["first"], co_linetable=table).co_lines())
    code = code.replace(co_firstlineno=of["first"], co_lnotab=table, co_code=bytes(1 << 20))
    starts = list(dis.findlinestarts(code))
    return [(at, end, line) for (at, line), (end, _) in zip(starts, starts[1:] + [(1 << 30, 0)])]


@functools.lru_cache(None)
def frame(number, at):
    of = codes[number]
    line = of["first"] if at < 0 else next((line for begin, end, line in lines(number) if begin <= at < end), None)
    return [text(of["file"], of["file_unit"]), line, text(of["name"], of["name_unit"]), at]


def short(frames):
    return ascii([[f if f is None or isinstance(f, int) else f[:40] for f in frame] for frame in frames])


frames = [[cut(file), line, cut(name), at] for file, line, name, at in expected["frames"]]
bad = compared = dropped = 0
if set(expected["stacks"]) != set(recorded):
    bad += 1
    print("allocations differ: %d expected, %d recorded" % (len(expected["stacks"]), len(recorded)))
for size, numbers in expected["stacks"].items():
    have = recorded.get(size, {"dropped": 0, "frames": []})
    want = [frames[n] for n in numbers[have["dropped"] :]]
    got = [frame(*f) for f in have["frames"]]
    compared += len(want)
    dropped += have["dropped"]
    if got != want:
        bad += 1
        if bad < 10:
            at = next((i for i, (a, b) in enumerate(zip(want[::-1], got[::-1])) if a != b), min(len(want), len(got)))
            print("%s: %d frames expected, %d and %d dropped recorded; number %d from the innermost is wrong:" % (size, len(numbers), len(got), have["dropped"], at))
            print("  expected %s\n  recorded %s" % (short(want[::-1][max(at - 1, 0) : at + 3]), short(got[::-1][max(at - 1, 0) : at + 3])))
print("%d shapes in %d places, %d stacks, %d frames compared, %d dropped, %d stacks wrong" % (len(expected["shapes"]), sum(expected["shapes"].values()), len(expected["stacks"]), compared, dropped, bad))
sys.exit(bad != 0)
