"""LineProfileHook: CuPy's algorithm and text, against its worked sequences and a
stand-in for its pool, and against gpuanalyze where the program is recorded."""

import os
import sys
import unittest

from support import BIN, PACKAGE, STANDIN, Case, analyze, record, recording_missing

# A call with a stack of frames (file, line, function), outermost first: each frame
# is real, of code compiled under that name.
STACKS = """
import gpurec
def call(stack, f, **given):
    if not stack:
        return f(**given)
    (file, line, name), rest = stack[0], stack[1:]
    at = line - (name != "<module>")
    body = "call(rest, f, **given)" if name == "<module>" else "def %s():\\n%scall(rest, f, **given)\\n" % (name, "\\n" * (at - 1) + " ")
    if name == "<module>":
        code = compile("\\n" * (line - 1) + body, file, "exec")
        exec(code, dict(call=call, rest=rest, f=f, given=given))
    else:
        space = dict(call=call, rest=rest, f=f, given=given)
        exec(compile(body, file, "exec"), space)
        space[name]()
"""


class TestSequences(Case):
    """The sequences whose text CuPy's own hook printed, by hand: (mallocs, allocs, stack)."""

    M, T, T2 = ("/app/main.py", 42, "<module>"), ("/app/train.py", 10, "train"), ("/app/train.py", 12, "train")
    F, B = ("/app/net.py", 7, "forward"), ("/app/net.py", 9, "forward")
    X = ("/usr/lib/python3.11/threading.py", 1002, "_bootstrap")
    P, XX, YY = ("a.py", 1, "<module>"), ("a.py", 2, "x"), ("a.py", 3, "y")

    A = [(1024, [1024], [M, T, F]), (2048, [2048], [M, T, B]), (1024, [], [M, T, F]), (512, [], [M, T2])]
    TEXT_A = """\
_root (4.50KB, 3.00KB)
  /app/main.py:42:<module> (4.50KB, 3.00KB)
    /app/train.py:10:train (4.00KB, 3.00KB)
      /app/net.py:7:forward (2.00KB, 1.00KB)
      /app/net.py:9:forward (2.00KB, 2.00KB)
    /app/train.py:12:train (512.00B, 0.00B)
"""
    SEQUENCE_B = [
        (0, [], [M]),
        (1048576, [1048576], [M, T, T]),
        (3221225472, 3 * [3221225472], [M, T]),
        (1048576, [], [M, T2]),
        (524288, [], [X, B]),
    ]
    TEXT_B = """\
_root (3.00GB, 9.00GB)
  /app/main.py:42:<module> (3.00GB, 9.00GB)
    /app/train.py:10:train (3.00GB, 9.00GB)
      /app/train.py:10:train (1.00MB, 1.00MB)
    /app/train.py:12:train (1.00MB, 0.00B)
  /usr/lib/python3.11/threading.py:1002:_bootstrap (512.00KB, 0.00B)
    /app/net.py:9:forward (512.00KB, 0.00B)
"""
    C = [(512, [], [P, YY]), (512, [], [P, XX]), (512, [], [P, YY]), (512, [], [XX]), (512, [], [])]
    TEXT_C = """\
_root (2.50KB, 0.00B)
  a.py:1:<module> (1.50KB, 0.00B)
    a.py:3:y (1.00KB, 0.00B)
    a.py:2:x (512.00B, 0.00B)
  a.py:2:x (512.00B, 0.00B)
"""

    def text(self, sequence, depth=0):
        """What the hook prints. The test's own frames are all in <string>, and left out
        as the hook leaves out its own."""
        _, out, err = self.run_python(
            STACKS
            + """
import gpurec._lines as lines, sys
lines._HERE = "<string>"
hook = gpurec.LineProfileHook(%d)
for used, acquired, stack in %r:
    call(stack, hook.malloc_preprocess, device_id=0, size=used, mem_size=used)
    for n in acquired:
        call(stack, hook.alloc_preprocess, device_id=0, mem_size=n)
hook.print_report()
"""
            % (depth, sequence),
            GPUREC_SOCKET=None,
            LD_PRELOAD=None,
        )
        self.assertEqual(err, "")
        return out

    def test_sequences(self):
        for name, sequence, want in (("A", self.A, self.TEXT_A), ("B", self.SEQUENCE_B, self.TEXT_B), ("C", self.C, self.TEXT_C)):
            with self.subTest(name):
                self.assertEqual(self.text(sequence), want)

    def test_max_depth(self):
        lines = self.TEXT_A.splitlines(keepends=True)
        rows = {1: lines[:1], 2: lines[:2], 3: lines[:3] + lines[5:], 4: lines, 5: lines, -1: lines}
        for depth, want in rows.items():
            with self.subTest(depth):
                self.assertEqual(self.text(self.A, depth), "".join(want))

    def test_sizes(self):
        sys.path.insert(0, PACKAGE)
        try:
            from gpurec._lines import size
        finally:
            sys.path.remove(PACKAGE)
        rows = {0: "0.00B", 1: "1.00B", 511: "511.00B", 1000: "1000.00B", 1023: "1023.00B", 1024: "1.00KB", 1029: "1.00KB", 1030: "1.01KB"}
        rows.update({1152: "1.12KB", 1408: "1.38KB", 1536: "1.50KB", 1664: "1.62KB", 1920: "1.88KB", 1048064: "1023.50KB"})
        rows.update({1048570: "1023.99KB", 1048571: "1024.00KB", 1048575: "1024.00KB", 1 << 20: "1.00MB", 1179648: "1.12MB", 1441792: "1.38MB"})
        rows.update({1068373115: "1018.88MB", (1 << 30) - 1: "1024.00MB", 1 << 30: "1.00GB", 150754820096: "140.40GB", (1 << 40) - 1: "1024.00GB"})
        rows.update({1 << 40: "1.00TB", 1 << 50: "1.00PB", (1 << 60) - 1: "1.00EB", (1 << 63) - 1: "8.00EB", 1 << 70: "1.00ZB", 1 << 80: "1024.00ZB"})
        rows.update({-1: "-1.00B", -4096: "-4096.00B", -(1 << 20): "-1048576.00B"})
        for n, want in rows.items():
            self.assertEqual(size(n), want, n)


class TestBesideCuPy(Case):
    """What CuPy's own tests of its hook assert, and what its registry forbids and
    ours allows."""

    def test_rows(self):
        rows = {
            "the report": (
                """
pool.malloc(1000).free()
with Hook() as hook:
    a = pool.malloc(1000)
    b = pool.malloc(2000)
out = report(hook)
print(out.startswith("_root (3.00KB, 2.00KB)\\n"), "<module> (1.00KB, 0.00B)\\n" in out, "<module> (2.00KB, 2.00KB)\\n" in out)
""",
                "True True True",
            ),
            "depths": (
                """
for depth in (1, 2):
    with Hook(depth) as hook: pool.malloc(1)
    print(len(report(hook).split("\\n")), end=" ")
""",
                "2 3",
            ),
            "no events": ("with Hook() as hook: pass\nprint(repr(report(hook)))", r"'_root (0.00B, 0.00B)\n'"),
            "nested, and beside CuPy's own": (
                """
class Own(memory_hook.MemoryHook): name = "LineProfileHook"
with Own(), Hook() as a:
    pool.malloc(1)
    with Hook() as b, a:
        pool.malloc(1)
print(root(a), root(b), list(memory_hook.get_memory_hooks()) == before)
""",
                "(1.00KB, 512.00B) (512.00B, 0.00B) True",
            ),
            "left in another order": (
                "a, b = Hook().__enter__(), Hook().__enter__(); a.__exit__(); pool.malloc(1); b.__exit__(); pool.malloc(1)\n"
                "print(root(a), root(b), list(memory_hook.get_memory_hooks()) == before)",
                "(0.00B, 0.00B) (512.00B, 512.00B) True",
            ),
            "entered again, it counts on": (
                "hook = Hook()\nfor i in range(2):\n with hook: pool.malloc(1)\nprint(root(hook))", "(1.00KB, 512.00B)"
            ),
            "a thread's own": (
                """
import threading
with Hook() as hook:
    t = threading.Thread(target=pool.malloc, args=(1,)); t.start(); t.join()
    print(root(hook), end=" ")
    def work():
        with hook: pool.malloc(1)
    t = threading.Thread(target=work); t.start(); t.join()
    pool.malloc(1)
print(root(hook))
""",
                "(0.00B, 0.00B) (1.00KB, 0.00B)",
            ),
            "twice in a thread, counted once": (
                "hook = Hook()\nwith hook:\n with hook: pool.malloc(1)\n pool.malloc(1)\nhook.__exit__(); pool.malloc(1)\n"
                "print(root(hook), list(memory_hook.get_memory_hooks()) == before)",
                "(1.00KB, 512.00B) True",
            ),
            "as a decorator": ("hook = Hook()\n@hook\ndef f(): pool.malloc(1)\nf(); f(); pool.malloc(1)\nprint(root(hook))", "(1.00KB, 512.00B)"),
            "a copy counts for itself": (
                "import copy, pickle\nwith Hook(3, name='a') as hook: pool.malloc(1); other = pickle.loads(pickle.dumps(hook))\nwith copy.deepcopy(other) as b: pool.malloc(1)\n"
                "print(root(hook), root(other), root(b), other.name, other.max_depth)",
                "(512.00B, 512.00B) (512.00B, 512.00B) (1.00KB, 512.00B) a 3",
            ),
            "output that takes no more, or not all letters": (
                """
import sys
good, hook = sys.stdout, Hook()
exec(compile("hook.malloc_preprocess(mem_size=1)", "\\udc80é", "exec"))
narrow, closed = io.TextIOWrapper(io.BytesIO(), encoding="ascii"), io.StringIO()
closed.close()
for sys.stdout in (None, closed, narrow): hook.print_report()
sys.stdout = good
try: hook.print_report(closed)
except ValueError: print(narrow.buffer.getvalue().split(b"\\n")[2].strip())
""",
                "b'??:1:<module> (1.00B, 0.00B)'",
            ),
            "objects": (
                "a, b = Hook(), Hook(2, name='b'); print(a == a, a == b, len({a, b}), a.name, b.name, a.max_depth, b.max_depth)",
                "True False 2 LineProfileHook b 0 2",
            ),
            "a failing malloc counts as CuPy's": (
                """
small = cupy.cuda.memory.Pool(cupy.cuda.memory.Device(512))
with Hook() as hook:
    try: small.malloc(1000)
    except MemoryError: pass
print(root(hook))
""",
                "(1.00KB, 3.00KB)",
            ),
            "standard output as it is then": (
                "import io, contextlib\nout = io.StringIO()\nwith contextlib.redirect_stdout(out): Hook().print_report()\nprint(out.getvalue() == report(Hook()))",
                "True",
            ),
            "the six callbacks": (
                "h = Hook(); k = dict(device_id=0, mem_size=512, mem_ptr=1, pmem_id=1)\n"
                "h.malloc_preprocess(device_id=0, size=1, mem_size=512); h.alloc_preprocess(device_id=0, mem_size=512)\n"
                "h.alloc_postprocess(device_id=0, mem_size=512, mem_ptr=1); h.malloc_postprocess(size=1, **k); h.free_preprocess(**k); h.free_postprocess(**k)\n"
                "print(root(h))",
                "(512.00B, 512.00B)",
            ),
        }
        prelude = """
import cupy, io, gpurec
from cupy.cuda import memory_hook
from gpurec import LineProfileHook as Hook
def report(hook):
    out = io.StringIO(); hook.print_report(out); return out.getvalue()
def root(hook): return report(hook).split("\\n")[0][len("_root "):]
before = list(memory_hook.get_memory_hooks())
"""
        program = prelude
        for body, _ in rows.values():
            program += "\npool = cupy.cuda.memory.Pool(cupy.cuda.memory.Device())\n" + body + "\nprint('---')\n"
        for recorded in (True, False):
            _, out, err = self.run_python(program, path=[STANDIN], **({} if recorded else dict(GPUREC_SOCKET=None, LD_PRELOAD=None)))
            found = out.split("---\n")
            self.assertEqual((len(found), err), (len(rows) + 1, ""))
            for (name, (_, want)), got in zip(rows.items(), found):
                with self.subTest(name, recorded=recorded):
                    self.assertEqual(got.strip(), want)


@unittest.skipIf(recording_missing(), recording_missing())
class TestAgainstTheTrace(Case):
    def test_equal_texts(self):
        """What the program prints is what gpuanalyze prints of the same stretch."""
        program = self.write(
            "program/lines.py",
            """
            import sys, threading
            import cupy, gpurec
            pool = cupy.cuda.memory.Pool(cupy.cuda.memory.Device(1 << 20))

            def deep(n, size):
                return deep(n - 1, size) if n else pool.malloc(size)

            def work(name, depth):
                with gpurec.LineProfileHook(depth, name=name) as hook:
                    kept = [deep(n % 4, 100 * n) for n in range(20)]
                    deep(2, 0)
                    for n in (3, 1):
                        kept.append(deep(n, 5000))
                    try:
                        pool.malloc(1 << 30)
                    except MemoryError:
                        pass
                    with gpurec.LineProfileHook(name=name + " inner") as inner:
                        (lambda: [pool.malloc(1) for _ in range(3)])()
                for h in (hook, inner):
                    with open("%s.txt" % h.name, "w") as f:
                        h.print_report(f)

            import os
            os.chdir(sys.argv[1])
            for depth in range(4):
                work("depth %d" % depth, depth)
            t = threading.Thread(target=work, args=("thread", 0)); t.start(); t.join()
            """,
        )
        trace = os.path.join(self.dir, "t.gpurec")
        record(trace, [sys.executable, os.path.join(program, "lines.py"), self.dir], ["--simulate-gpu"], PYTHONPATH=STANDIN)
        names = [n[:-4] for n in os.listdir(self.dir) if n.endswith(".txt")]
        self.assertEqual(len(names), 10)
        for name in names:
            with self.subTest(name), open(os.path.join(self.dir, name + ".txt")) as f:
                depth = name.split()[1] if name.startswith("depth") and "inner" not in name else "0"
                printed = f.read()
                found = analyze("lines", "-q", "--scope", name, "--max-depth", depth, trace)
                self.assertTrue(depth == "1" or "lines.py" in printed)
                self.assertEqual(self.above_the_pool(printed), self.above_the_pool(found))

    def test_all_sources(self):
        """What print_report prints of all sources is in the trace up to that moment:
        while the scope is open, and after."""
        program = self.write(
            "program/all.py",
            """
            import sys
            import cupy, gpurec
            from gpurec.demo import devices
            device = devices()[0]
            device.use()
            pool = cupy.cuda.memory.Pool(device.alloc)
            def plain(n): return device.alloc(n << 20)
            with gpurec.LineProfileHook(2, name="all", sources="all") as hook:
                a = plain(1)
                hook.print_report()
                b = plain(2)
                kept = pool.malloc(1 << 20)
            plain(4)
            print("---")
            hook.print_report()
            """,
        )
        trace = os.path.join(self.dir, "t.gpurec")
        path = os.pathsep.join((BIN, os.environ["PATH"]))
        command = [sys.executable, os.path.join(program, "all.py")]
        out = record(trace, command, ["--simulate-gpu"], PYTHONPATH=STANDIN, PATH=path).stdout
        self.assertNotIn("unknown", out)
        open_, closed = out.split("---\n")
        self.assertEqual(open_.splitlines()[0], "_root (1.00MB, 1.00MB)")
        self.assertEqual(closed, analyze("lines", "-q", "--scope", "all", "--max-depth", "2", trace))
        self.assertEqual(closed.splitlines()[0], "_root (1.00MB, 4.00MB)")
        out = record(os.path.join(self.dir, "u.gpurec"), command, ["--simulate-gpu"], PYTHONPATH=STANDIN, PATH=os.path.dirname(sys.executable) + ":/usr/bin:/bin").stdout
        unknown = "_root: unknown [this takes gpuanalyze, which is not on PATH]\n"
        self.assertEqual(out, unknown + "---\n" + unknown)

    def above_the_pool(self, text):
        """Without the stand-in's own lines: it is Python, so one of them stands for
        where a malloc begins and another for where it ends. CuPy's is compiled."""
        return [line for line in text.splitlines() if "standin/cupy" not in line]


if __name__ == "__main__":
    unittest.main()
