"""Tests of compare.py: that it agrees where it should, and that it can differ.

    python3 -m unittest discover -s testdata/h200
"""

import contextlib
import io
import json
import os
import tempfile
import unittest

import compare

HEAD = "gpurec 1\nprocess 1 pid=1\n"

TORCH = """\
name 1 "moment:a"
name 2 "moment:b"
name 3 "peak-reset"
part
5 Alloc api=cuMemAlloc_v2 address=0x1000 size=2097152
10 Alloc api=torch device=0 address=0x1000 size=512 allocated=512 reserved=2097152
20 Alloc api=torch device=0 address=0x2000 size=1024 allocated=1536 reserved=2097152
30 Free api=torch device=0 address=0x1000 allocated=1024 reserved=2097152
40 Mark api=nvtx name=1
50 Mark api=nvtx name=3
60 Free api=torch device=0 address=0x2000 allocated=0 reserved=2097152
70 Mark api=nvtx name=2
"""
TORCH_SAYS = [
    {"torch": "2", "backend": "native", "conf": ""},
    dict(moment="a", allocated=2, freed=1, memory_allocated=1024, max_memory_allocated=1536, memory_reserved=2097152),
    dict(moment="b", allocated=2, freed=2, memory_allocated=0, max_memory_allocated=1024, memory_reserved=2097152),
]

ASYNC = """\
name 1 "moment:own-start"
name 2 "moment:own-end"
part
1 Alloc api=cuMemAllocAsync address=0x9000 size=100
2 Mark api=nvtx name=1
3 Alloc api=cuMemAllocAsync address=0x1000 size=1000
4 Alloc api=cuMemAllocAsync_ptsz address=0x2000 size=2000
5 Free api=cuMemFree_v2 address=0x1000
6 Free api=cuMemFree_v2 address=0x8888
7 Mark api=nvtx name=2
"""
ASYNC_SAYS = [
    {"torch": "2", "backend": "cudaMallocAsync", "conf": ""},
    dict(moment="own-start", own_allocated=0, own_freed=0, own_bytes=0, own_live=0, memory_allocated=512),
    dict(moment="own-end", own_allocated=2, own_freed=1, own_bytes=2000, own_live=1, memory_allocated=2560),
]

CUPY = """\
name 1 "moment:a"
name 2 "moment:b"
part
1 Alloc api=cuMemAlloc_v2 address=0x7000 size=77
2 Alloc api=cuMemAlloc_v2 address=0x1000 size=1024 flags=inpool
3 Alloc api=cupy.alloc address=0x1000 size=1024 flags=echo
4 Alloc api=cupy address=0x1000 object=0x5 size=1024 requested=1000
5 Alloc api=cupy object=0x6 size=0 requested=0
6 Mark api=scope name=1
7 Free api=cupy address=0x1000 object=0x5
8 Free api=cuMemFree_v2 address=0x1000
9 Mark api=scope name=2
"""
CUPY_SAYS = [
    {"cupy": "14"},
    dict(moment="a", used_bytes=1024, total_bytes=1024),
    dict(moment="b", used_bytes=0, total_bytes=0),
]

FLAVOURS = """\
name 1 "start:0"
name 10 "step:0"
name 11 "step:1"
name 12 "step:2"
name 13 "step:3"
name 14 "step:4"
name 15 "step:5"
part
1 Alloc api=cuMemAlloc_v2 address=0x9000 size=1
2 Mark api=nvtx name=1
3 Alloc api=cuMemAlloc_v2 address=0x1000 size=3145728
4 Mark api=nvtx name=10
5 Free api=cuMemFree_v2 address=0x1000
6 Mark api=nvtx name=11
7 AllocFailed api=cuMemAlloc_v2 requested=1125899906842624 status=2
8 Mark api=nvtx name=12
9 Alloc api=cuMemAllocAsync address=0x2000 size=5242880
10 Mark api=nvtx name=13
11 Alloc api=cuMemAllocManaged address=0x3000 size=8388608
12 Mark api=nvtx name=14
13 Reset api=cuDevicePrimaryCtxReset_v2
14 Mark api=nvtx name=15
"""


def step(n, call, asked, cls, taken, pool=0, status=0):
    return {"step": n, "call": call, "asked": asked, "class": cls, "status": status, "taken": taken, "pool_reserved": pool}


MiB = 1 << 20
FLAVOURS_SAY = [
    step(0, "cudaMalloc", 3 * MiB, "device", 4 * MiB),
    step(1, "cudaFree", 0, "device", -4 * MiB),
    step(2, "cudaMalloc", 1 << 50, "device", 0, status=2),
    step(3, "cudaMallocAsync", 5 * MiB, "device", 32 * MiB, pool=32 * MiB),
    step(4, "cudaMallocManaged", 8 * MiB, "managed", 0),
    step(5, "cudaDeviceReset", 0, "reset", -32 * MiB, pool=-32 * MiB),
]


class TestCompare(unittest.TestCase):
    def verdict(self, which, text, says):
        with tempfile.TemporaryDirectory() as d:
            paths = os.path.join(d, "text"), os.path.join(d, "json")
            with open(paths[0], "w") as f:
                f.write(HEAD + text)
            with open(paths[1], "w") as f:
                f.write("".join(json.dumps(s) + "\n" for s in says))
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                status = compare.main([which, *paths])
            return status, out.getvalue()

    def test_agree(self):
        for which, text, says in (
            ("torch", TORCH, TORCH_SAYS),
            ("async", ASYNC, ASYNC_SAYS),
            ("cupy", CUPY, CUPY_SAYS),
            ("flavours", FLAVOURS, FLAVOURS_SAY),
        ):
            with self.subTest(which):
                status, out = self.verdict(which, text, says)
                self.assertEqual(status, 0, out)

    def test_every_number_can_differ(self):
        for which, text, says in (
            ("torch", TORCH, TORCH_SAYS),
            ("async", ASYNC, ASYNC_SAYS),
            ("cupy", CUPY, CUPY_SAYS),
        ):
            for i, row in enumerate(says[1:], 1):
                for name in row:
                    if name in ("moment", "memory_reserved"):
                        continue
                    changed = [dict(r) for r in says]
                    changed[i][name] += 1
                    if (which, name) == ("async", "memory_allocated"):
                        changed[i][name] += 512 * 2  # beyond the rounding
                    with self.subTest("%s %s %s" % (which, row["moment"], name)):
                        self.assertEqual(self.verdict(which, text, changed)[0], 1)

    def test_every_event_counts(self):
        for which, text, says in (
            ("torch", TORCH, TORCH_SAYS),
            ("async", ASYNC, ASYNC_SAYS),
            ("cupy", CUPY, CUPY_SAYS),
            ("flavours", FLAVOURS, FLAVOURS_SAY),
        ):
            lines = text.splitlines(True)
            without_effect = ("0x9000 size=1\n", "size=77", "0x8888", "object=0x6", "api=cuMemAlloc_v2 address=0x1000 size=2097152")
            for i, line in enumerate(lines):
                if not line[0].isdigit() or any(w in line for w in without_effect):
                    continue
                with self.subTest("%s without %s" % (which, line)):
                    status, out = self.verdict(which, "".join(lines[:i] + lines[i + 1 :]), says)
                    self.assertEqual(status, 1, out)

    def test_flavours_can_differ(self):
        rows = {
            "size": (0, dict(asked=3 * MiB + 1)),
            "class": (0, dict([("class", "array")])),
            "unexplained": (0, dict(taken=12 * MiB)),
            "given back too much": (1, dict(taken=-12 * MiB)),
            "failure": (2, dict(status=0, asked=1)),
            "pool": (3, dict(pool_reserved=0)),
            "managed is not on the device": (4, dict(taken=8 * MiB)),
        }
        for name, (i, change) in rows.items():
            with self.subTest(name):
                says = [dict(r) for r in FLAVOURS_SAY]
                says[i].update(change)
                status, out = self.verdict("flavours", FLAVOURS, says)
                self.assertEqual(status, 1, out)

    def test_nothing_compared_is_a_difference(self):
        self.assertEqual(self.verdict("torch", "part\n", TORCH_SAYS[:1])[0], 1)

    def test_contexts(self):
        scopes = [
            ("step", 1, 90, 0), ("step", 2, 100, 0), ("evaluation", 1, 30, 5),
            ("evaluation-batch", 1, 10, 5), ("evaluation-batch", 2, 20, 5), ("evaluation-batch", 3, 30, 5),
        ]  # fmt: skip
        says = [TORCH_SAYS[0], dict(moment="trained", max_memory_allocated=100)]
        says += [dict(moment="evaluation-%d" % i, max_memory_allocated=10 * i + 10, memory_allocated=5) for i in range(3)]

        def verdict(scopes):
            answer = {"scopes": [dict(name=a, n=n, bytes=dict(max=m, end=e)) for a, n, m, e in scopes]}
            with contextlib.redirect_stdout(io.StringIO()):
                return compare.contexts(answer, says)

        self.assertEqual(verdict(scopes), 0)
        for i in range(1, len(scopes)):
            name, n, peak, end = scopes[i]
            with self.subTest(name, n=n):
                self.assertEqual(verdict(scopes[:i] + [(name, n, peak + 1, end)] + scopes[i + 1 :]), 1)
                self.assertEqual(verdict(scopes[:i] + scopes[i + 1 :]), 1)
        self.assertEqual(verdict([]), 1)

    def test_text(self):
        for a, b, status in (("x\ny\n", "x\ny\n", 0), ("x\ny\n", "x\nz\n", 1), ("x\n", "x", 1), ("", "", 1)):
            with self.subTest((a, b)), tempfile.TemporaryDirectory() as d:
                paths = os.path.join(d, "a"), os.path.join(d, "b")
                for path, content in zip(paths, (a, b)):
                    with open(path, "w") as f:
                        f.write(content)
                with contextlib.redirect_stdout(io.StringIO()):
                    self.assertEqual(compare.main(["text", *paths]), status)


if __name__ == "__main__":
    unittest.main()
