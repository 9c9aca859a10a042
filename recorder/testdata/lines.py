"""Prints line tables and what Python itself reads in them, for lines_test.go.

    for p in python3.9 python3.10 python3.11 python3.12 python3.13 python3.14; do $p lines.py; done > lines.txt

A line: version, first line, table in hex, then START:LINE for every run of
bytecode offsets, LINE 0 where an instruction has no line.
"""

import dis
import sys
import textwrap

SAMPLE = '''
def short(a, b):
    return (a +
            b)

def far(x):
    for i in range(
        x,
    ):
        if i:
            continue
        try:
            yield i
        except ValueError as e:
            raise RuntimeError(
                "a"
            ) from e
        finally:
            print(i)



GAP

    with open(x) as f: return [
        y
        for y in f
        if y
    ]

class C:
    @property
    def p(self): return {
        "k": 1, "l":
        [z for z in range(3)]}
    def __init__(self):
        self.a, self.b = \\
            1, 2
        assert self.a
lam = lambda q: (q,
    q)
async def co():
    async with co() as a:
        await a
    match = 1
    while match:
        match -= 1
    else:
        del match
'''.replace("GAP", "\n" * 300)


def codes(code):
    yield code
    for c in code.co_consts:
        if hasattr(c, "co_code"):
            yield from codes(c)


def runs(code):
    if sys.version_info >= (3, 10):
        for start, end, line in code.co_lines():
            if end > start:
                yield start, line or 0
        return
    line = code.co_firstlineno
    for start, line in dis.findlinestarts(code):
        yield start, line


for c in codes(compile(SAMPLE, "sample.py", "exec")):
    table = c.co_linetable if sys.version_info >= (3, 10) else c.co_lnotab
    print("%d.%d" % sys.version_info[:2], c.co_firstlineno, table.hex() or "-", len(c.co_code), *("%d:%d" % r for r in runs(c)))
