"""Compares the stacks that the hook recorded with those that stacks.py printed.

stdin: {"expected": {address: [[file, line, function], ...]},
        "recorded": {address: {"dropped": n, "frames": [frame, ...]}}}
where a frame is {file, file_unit, name, name_unit, first, table, total, instruction},
texts and table in hex, and both lists outermost first. Lines are decoded by this
interpreter, which must be the one that was recorded, from a code object with the
recorded table.
"""

import dis
import json
import sys

MOST_BYTES = 4096  # of a text; longer ones are cut


def text(data, unit):
    return bytes.fromhex(data).decode({0: "utf-8", 1: "latin-1", 2: "utf-16-le", 4: "utf-32-le"}[unit])


def line(frame):
    code = (lambda: 0).__code__
    table = bytes.fromhex(frame["table"])
    at = frame["instruction"]
    if sys.version_info >= (3, 10):
        code = code.replace(co_firstlineno=frame["first"], co_linetable=table)
        found = None
        for start, end, number in code.co_lines():
            if start <= at < end:
                found = number
        return found
    code = code.replace(co_firstlineno=frame["first"], co_lnotab=table, co_code=bytes(max(at, 0) + 2))
    found = frame["first"]
    for start, number in dis.findlinestarts(code):
        if start <= at:
            found = number
    return found


def main():
    given = json.load(sys.stdin)
    expected, recorded = given["expected"], given["recorded"]
    bad = 0
    if set(expected) != set(recorded):
        bad += 1
        print("addresses differ: %d expected, %d recorded" % (len(expected), len(recorded)))
    for address, want in expected.items():
        have = recorded.get(address, {"dropped": 0, "frames": []})
        want = [[f[:MOST_BYTES], n, g] for f, n, g in want]
        got = [[text(f["file"], f["file_unit"]), line(f), text(f["name"], f["name_unit"])] for f in have["frames"]]
        if have["dropped"]:
            if len(got) + have["dropped"] != len(want):
                bad += 1
                print("%s: %d frames and %d dropped of %d" % (address, len(got), have["dropped"], len(want)))
            want = want[len(want) - len(got):]
        if got != want:
            bad += 1
            if bad < 10:
                print("%s:\n  expected %s\n  recorded %s" % (address, want[-4:], got[-4:]))
    print("%d stacks compared, %d wrong" % (len(expected), bad))
    sys.exit(bad != 0)


main()
