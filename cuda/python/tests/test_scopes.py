"""Scopes and marks, in a recording and outside one."""

import unittest

from support import STANDIN, Case, stub


class TestOutsideARecording(Case):
    PROGRAM = """
        import sys, gpurec
        print(gpurec.active(), "ctypes" in sys.modules)
        with gpurec.scope("a") as s: s.reset(); s.report("x")
        @gpurec.scope("f")
        def f(x): return x + 1
        gpurec.mark("m"); print(f(1))
        with gpurec.LineProfileHook(max_depth=2): pass
        import cupy
        print(list(cupy.cuda.memory_hook.get_memory_hooks()))
        """

    def test_no_ops(self):
        rows = {
            "no socket": dict(GPUREC_SOCKET=None, LD_PRELOAD=None),
            "socket, no hook": dict(LD_PRELOAD=None),
            "socket, no such hook": dict(LD_PRELOAD=None, GPUREC_HOOK="/nonexistent.so"),
            "hook, no socket": dict(GPUREC_SOCKET=None),
        }
        for name, environment in rows.items():
            with self.subTest(name):
                log, out, err = self.run_python(self.PROGRAM, path=[STANDIN], **environment)
                loaded = environment.get("GPUREC_SOCKET", "/nowhere") is not None
                self.assertEqual(out, "False %s\n2\n[]\n" % loaded)
                self.assertEqual((log, err), ([], ""))

    def test_a_hook_that_is_not_recording_leaves_cupy_alone(self):
        _, out, _ = self.run_python(
            "import cupy; print(list(cupy.cuda.memory_hook.get_memory_hooks()))", path=[STANDIN], STUB_INACTIVE="1"
        )
        self.assertEqual(out, "[]\n")

    def test_the_hook_is_found_by_its_path(self):
        log, _, _ = self.run_python("import gpurec; gpurec.mark('m')", LD_PRELOAD=None, GPUREC_HOOK=stub())
        self.assertEqual(log, ["mark m"])


class TestScopes(Case):
    def test_rows(self):
        rows = {
            "nested": (
                "with scope('a'):\n with scope('b', 'd'): pass",
                ["scope_begin a - -> 1", "scope_begin b d -> 2", "scope_end 2", "scope_end 1"],
            ),
            "overlapping": (
                "a = scope('a').__enter__(); b = scope('b').__enter__(); a.__exit__(); b.__exit__()",
                ["scope_begin a - -> 1", "scope_begin b - -> 2", "scope_end 1", "scope_end 2"],
            ),
            "one object again, open": (
                "a = scope('a')\nwith a:\n with a: a.reset()",
                ["scope_begin a - -> 1", "scope_begin a - -> 2", "scope_reset 2", "scope_end 2", "scope_end 1"],
            ),
            "reset and report": (
                "with scope('a') as a: a.report('1st'); a.reset(); a.report()\na.report(); a.reset(); a.__exit__()",
                ["scope_begin a - -> 1", "scope_report 1 1st", "scope_reset 1", "scope_report 1 -", "scope_end 1"],
            ),
            "an exception passes": (
                "try:\n with scope('a'): raise KeyError\nexcept KeyError: gpurec.mark('passed')",
                ["scope_begin a - -> 1", "scope_end 1", "mark passed"],
            ),
            "recursive function": (
                "@scope('f')\ndef f(n): return n and f(n - 1)\nf(1)",
                ["scope_begin f - -> 1", "scope_begin f - -> 2", "scope_end 2", "scope_end 1"],
            ),
            "a call's own entry": (
                "a = scope('f')\n@a\ndef f(n):\n a.report(); n and f(n - 1); a.reset()\nf(1)\na.report()",
                ["scope_begin f - -> 1", "scope_report 1 -", "scope_begin f - -> 2", "scope_report 2 -", "scope_reset 2", "scope_end 2", "scope_reset 1", "scope_end 1"],
            ),
            "coroutine": (
                "import asyncio\n@scope('c')\nasync def c(): await asyncio.sleep(0); gpurec.mark('in')\nasyncio.run(c())",
                ["scope_begin c - -> 1", "mark in", "scope_end 1"],
            ),
            "tasks with one object": (
                "import asyncio\na = scope('a')\nasync def task(event, other):\n with a: other.set(); await event.wait()\n gpurec.mark('left')\n"
                "async def main():\n one, two, go = asyncio.Event(), asyncio.Event(), asyncio.Event()\n"
                " tasks = [asyncio.ensure_future(task(e, o)) for e, o in ((one, go), (two, one))]\n await asyncio.gather(*tasks[:1])\n a.report()\n"
                " two.set(); await tasks[1]\nasyncio.run(main())",
                ["scope_begin a - -> 1", "scope_begin a - -> 2", "scope_end 1", "mark left", "scope_report 2 -", "scope_end 2", "mark left"],
            ),
            "entered in one context, left in others": (
                "import contextvars\na, b, new = scope('a'), scope('b'), contextvars.Context\nwith b:\n"
                " for i in range(3): new().run(a.__enter__)\n"
                " for i in range(4): a.__exit__()\n"
                " for i in range(2): a.__enter__(); new().run(a.__exit__)\n"
                "gpurec.mark(str((a._open, gpurec._entered.get())))",
                ["scope_begin b - -> 1"]
                + ["scope_begin a - -> %d" % i for i in (2, 3, 4)]
                + ["scope_end %d" % i for i in (4, 3, 2)]
                + ["scope_begin a - -> 5", "scope_end 5", "scope_begin a - -> 6", "scope_end 6", "scope_end 1", "mark ([], None)"],
            ),
            "a window of overlapping ones": (
                "import contextvars\na = [scope('a') for i in range(9)]\nfor i in range(9):\n a[i].__enter__()\n if i: contextvars.Context().run(a[i - 1].__exit__)\n"
                "entry, n = gpurec._entered.get(), 0\nwhile entry: entry, n = entry.before, n + 1\ngpurec.mark(n < 4)",
                ["scope_begin a - -> 1"] + [line for i in range(2, 10) for line in ("scope_begin a - -> %d" % i, "scope_end %d" % (i - 1))] + ["mark True"],
            ),
            "a copy has not been entered": (
                "import copy, pickle\nwith scope('a', 'd') as a:\n for b in (copy.copy(a), copy.deepcopy(a), pickle.loads(pickle.dumps(a))):\n  b.reset(); b.__exit__(); gpurec.mark(b.name)\n"
                "with b: pass",
                ["scope_begin a d -> 1", "mark a", "mark a", "mark a", "scope_end 1", "scope_begin a d -> 2", "scope_end 2"],
            ),
            "a subclass's copy": (
                "import copy\nclass Own(scope):\n def __init__(self, x): super().__init__('own'); self.x = x\nwith Own(5) as a: gpurec.mark(str(copy.copy(a).x))",
                ["scope_begin own - -> 1", "mark 5", "scope_end 1"],
            ),
            "metadata": (
                "@scope('f')\ndef f(x: int) -> int:\n 'doc'\ngpurec.mark('%s %s %s' % (f.__name__, f.__doc__, f.__wrapped__ is not f))",
                ["mark f doc True"],
            ),
            "CuPy's stretch": (
                "with gpurec.LineProfileHook(max_depth=3) as h: gpurec.mark(str(h.max_depth))",
                ["scope_begin LineProfileHook cupy -> 1", "mark 3", "scope_end 1"],
            ),
            "CuPy's stretch, named": (
                "with gpurec.LineProfileHook(name='sort'): pass",
                ["scope_begin sort cupy -> 1", "scope_end 1"],
            ),
            "odd names": (
                "with scope('\\udc80é'): pass\nfor name in (None, 5, b'x', 'a\\0b'):\n with scope(name, domain=7): gpurec.mark(name)",
                ["scope_begin ?é - -> 1", "scope_end 1"]
                + [line % {"n": n, "i": i} for i, n in enumerate(("None", "5", "b'x'", "a?b"), 2) for line in ("scope_begin %(n)s 7 -> %(i)d", "mark %(n)s", "scope_end %(i)d")],
            ),
        }
        for name, (program, expected) in rows.items():
            with self.subTest(name):
                log, out, err = self.run_python("import gpurec; from gpurec import scope\n" + program)
                self.assertEqual(log, expected)
                self.assertEqual(out + err, "")

    def test_every_public_name_is_documented(self):
        _, out, _ = self.run_python(
            "import gpurec; print([n for n in gpurec.__all__ if not getattr(gpurec, n).__doc__])"
        )
        self.assertEqual(out, "[]\n")


if __name__ == "__main__":
    unittest.main()
