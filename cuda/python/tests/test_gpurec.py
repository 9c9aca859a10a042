"""Tests of sitecustomize and of package gpurec, against a stand-in for the hook.

    python3 -m unittest discover -s cuda/python/tests

Each test runs a small program in an interpreter of its own, as gpurec run
would start it, and looks at what reached the hook's C API. CuPy is the one in
standin/, and in TestRealCuPy the real one where it can be imported.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = os.path.dirname(HERE)
HOOK = os.path.join(os.path.dirname(PACKAGE), "hook")
STANDIN = os.path.join(HERE, "standin")

SCRATCH = None
STUB = None


def setUpModule():
    global SCRATCH, STUB
    SCRATCH = tempfile.mkdtemp(prefix="gpurec-python-")
    STUB = os.path.join(SCRATCH, "stub.so")
    cc = os.environ.get("CC", "cc")
    subprocess.run(
        [cc, "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O2", "-fPIC", "-shared", "-I", HOOK, "-o", STUB]
        + [os.path.join(HERE, "stub.c"), os.path.join(HOOK, "cupy.c")],
        check=True,
    )


def tearDownModule():
    shutil.rmtree(SCRATCH)


class Case(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(dir=SCRATCH)

    def run_python(self, program, flags=(), path=(), **environment):
        """Runs program as gpurec run would; returns (what the hook was told, stdout, stderr)."""
        log = os.path.join(self.dir, "log")
        open(log, "w").close()
        env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "GPUREC", "LD_PRELOAD"))}
        env.update(PYTHONPATH=os.pathsep.join([PACKAGE] + list(path)), PYTHONDONTWRITEBYTECODE="1")
        env.update(STUB_LOG=log, LD_PRELOAD=STUB, GPUREC_SOCKET="/nowhere")
        env.update(environment)
        env = {k: v for k, v in env.items() if v is not None}
        p = subprocess.run(
            [sys.executable, *flags, "-c", textwrap.dedent(program)],
            env=env,
            cwd=self.dir,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            universal_newlines=True,
            timeout=60,
        )
        self.assertEqual(p.returncode, 0, p.stdout + p.stderr)
        with open(log) as f:
            return f.read().splitlines(), p.stdout, p.stderr

    def write(self, name, text):
        path = os.path.join(self.dir, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as f:
            f.write(textwrap.dedent(text))
        return os.path.dirname(path)


# What the hook is told for one malloc of 1000 bytes on device 0. The first call
# of each callback runs through a Python function of ours: one frame to skip.
def malloc(skip, acquired=False, nested=False, address=r"\d{15}", object="id", status=0, size=1000, rounded=1024):
    flags = 2 if nested else 0
    return (
        [r"enter"]
        + acquired * [r"pool_alloc api=203 device=0 address=\d{15} object=0 requested=%d size=%d duration=unknown "
                      r"status=0 flags=4 skip=%d" % (rounded, rounded, skip)]
        + [r"leave", r"pool_alloc api=202 device=0 address=%s object=%s requested=%d size=%d duration=known status=%d "
                     r"flags=%d skip=%d" % (address, object, size, rounded, status, flags, skip)]
    )


def free(skip):
    return [r"pool_free api=202 device=0 address=\d{15} object=id skip=%d" % skip]


class TestCuPy(Case):
    def check(self, log, *expected):
        expected = [line for lines in expected for line in lines]
        for i, (got, want) in enumerate(zip(log, expected)):
            self.assertRegex(got, "^%s$" % want, "call %d of\n%s" % (i, "\n".join(log)))
        self.assertEqual(len(log), len(expected), "\n".join(log))

    def test_miss_hit_free(self):
        log, _, _ = self.run_python(
            """
            import cupy
            pool = cupy.cuda.memory.Pool(cupy.cuda.memory.Device())
            m = pool.malloc(1000); m.free(); m.free()
            m = pool.malloc(1000); m.free()
            """,
            path=[STANDIN],
        )
        self.check(log, malloc(1, acquired=True), free(1), malloc(0), free(0))

    def test_zero_bytes_have_an_id_and_no_address(self):
        log, _, _ = self.run_python(
            "import cupy; m = cupy.cuda.memory.Pool(cupy.cuda.memory.Device()).malloc(0)", path=[STANDIN]
        )
        self.check(log, malloc(1, address="0", size=0, rounded=0))

    def test_out_of_memory_counts_each_attempt(self):
        log, _, _ = self.run_python(
            """
            import cupy
            pool = cupy.cuda.memory.Pool(cupy.cuda.memory.Device(capacity=512))
            try: pool.malloc(1000)
            except MemoryError: pass
            m = pool.malloc(1)
            """,
            path=[STANDIN],
        )
        failed = r"pool_alloc api=203 device=0 address=0 object=0 requested=1024 size=1024 duration=unknown status=-1 flags=4 skip=%d"
        end = malloc(1, address="0", object="0", status=-1)
        self.check(log, [end[0], failed % 1, failed % 0, failed % 0], end[1:], malloc(0, True, size=1, rounded=512), free(1))

    def test_pool_over_a_pool_is_nested(self):
        log, _, _ = self.run_python(
            """
            import cupy
            memory = cupy.cuda.memory
            inner = memory.Pool(memory.Device())
            kept = []
            def base(size):
                kept.append(inner.malloc(size))
                return kept[-1].ptr
            outer = memory.Pool(base)
            warm = inner.malloc(1)
            m = outer.malloc(1000)
            import os; os._exit(0)
            """,
            path=[STANDIN],
        )
        inner = malloc(0, acquired=True, nested=True, size=1024)
        outer = malloc(0, acquired=True)
        self.check(log, malloc(1, True, size=1, rounded=512), outer[:1], inner, outer[1:])

    def test_another_hook_that_raises_leaves_nothing_behind(self):
        log, _, _ = self.run_python(
            """
            import cupy
            memory = cupy.cuda.memory
            pool = memory.Pool(memory.Device())
            warm = pool.malloc(1)
            class Bad(cupy.cuda.memory_hook.MemoryHook):
                name = "bad"
                def malloc_preprocess(self, **kwargs): raise ValueError
            for i in range(3):
                try:
                    with Bad(): pool.malloc(1000)
                except ValueError: pass
            m = pool.malloc(1000)
            import os; os._exit(0)
            """,
            path=[STANDIN],
        )
        self.check(
            log,
            malloc(1, True, size=1, rounded=512),
            ["enter", "leave", "enter", "leave", "enter", "leave"],
            malloc(0, acquired=True),
        )

    def test_every_thread_that_starts_after(self):
        log, out, _ = self.run_python(
            """
            import threading, _thread
            before = threading.Event()
            def early():
                before.wait()
                print("early", list(cupy.cuda.memory_hook.get_memory_hooks()))
            t = threading.Thread(target=early); t.start()
            import cupy
            before.set(); t.join()
            def late(name):
                print(name, list(cupy.cuda.memory_hook.get_memory_hooks()))
            class Sub(threading.Thread):
                def run(self): late("sub")
            t = threading.Thread(target=late, args=("late",)); t.start(); t.join()
            t = Sub(daemon=True); t.start(); t.join()
            from concurrent.futures import ThreadPoolExecutor
            with ThreadPoolExecutor(1) as e: e.submit(late, "pool").result()
            done = threading.Event()
            def foreign():
                threading.current_thread()
                late("foreign"); done.set()
            _thread.start_new_thread(foreign, ()); done.wait()
            late("main")
            import traceback
            def stack(): print(len(traceback.extract_stack()))
            t = threading.Thread(target=stack); t.start(); t.join()
            """,
            path=[STANDIN],
        )
        self.assertEqual(
            out.splitlines(),
            ["early []"] + [n + " ['gpurec']" for n in ("late", "sub", "pool", "foreign", "main")] + ["4"],
        )
        self.assertEqual(log, [])

    def test_our_python_runs_only_once_a_callback(self):
        _, out, _ = self.run_python(
            """
            import sys, cupy
            pool = cupy.cuda.memory.Pool(cupy.cuda.memory.Device())
            m = pool.malloc(1000); m.free()
            seen = set()
            sys.setprofile(lambda frame, event, arg: seen.add(frame.f_code.co_filename))
            m = pool.malloc(1000); m.free(); m = pool.malloc(5000)
            sys.setprofile(None)
            print([f for f in seen if "gpurec" in f.replace(%r, "")])
            """
            % STANDIN,
            path=[STANDIN],
        )
        self.assertEqual(out, "[]\n")

    def test_other_hooks_and_exceptions_unchanged(self):
        log, out, err = self.run_python(
            """
            import cupy
            class Spy(cupy.cuda.memory_hook.MemoryHook):
                name = "spy"
                def malloc_postprocess(self, **kwargs): print(sorted(kwargs))
            pool = cupy.cuda.memory.Pool(cupy.cuda.memory.Device(capacity=1024))
            with Spy():
                m = pool.malloc(1000)
                try: pool.malloc(5000)
                except MemoryError as e: print(e)
            print(list(cupy.cuda.memory_hook.get_memory_hooks()))
            """,
            path=[STANDIN],
        )
        names = "['device_id', 'mem_ptr', 'mem_size', 'pmem_id', 'size']\n"
        self.assertEqual(out, names + names + "out of memory allocating 5120 bytes\n['gpurec']\n")
        self.assertEqual(err, "")

    def test_a_cupy_that_passes_more_is_recorded_all_the_same(self):
        log, _, err = self.run_python(
            """
            import cupy
            memory = cupy.cuda.memory
            memory.EXTRA["stream"] = 7
            pool = memory.Pool(memory.Device())
            for i in range(2): m = pool.malloc(1000); m.free()
            """,
            path=[STANDIN],
        )
        self.check(log, malloc(1, acquired=True), free(1), malloc(1), free(1))
        self.assertEqual(err, "")

    def test_a_cupy_that_passes_something_else_is_left_alone(self):
        log, out, err = self.run_python(
            """
            import cupy
            hook = cupy.cuda.memory_hook.get_memory_hooks()["gpurec"]
            for i in range(3): hook.malloc_preprocess(device=0, bytes=1, rounded=512)
            for i in range(3): hook.free_preprocess(device_id=None, mem_size=1, mem_ptr=1, pmem_id=1)
            """,
            path=[STANDIN],
        )
        self.assertEqual(len(log), 2, log)
        self.assertRegex(log[0], "^mark gpurec: CuPy's malloc_preprocess is not recorded: KeyError: 'device_id'$")
        self.assertRegex(log[1], "^mark gpurec: CuPy's free_preprocess is not recorded: ArgumentError")
        self.assertEqual(out + err, "")


class TestRealCuPy(Case):
    """The real MemoryHook class, without a GPU: what the pool would do is called by hand."""

    def test_registered_and_called_by_keyword(self):
        probe = subprocess.run(
            [sys.executable, "-c", "import cupy; print(cupy.__version__)"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            universal_newlines=True,
        )
        if probe.returncode != 0:
            self.skipTest("CuPy cannot be imported here: " + probe.stderr.strip().rpartition("\n")[2])
        log, out, err = self.run_python(
            """
            import threading
            from cupy.cuda import memory_hook
            def work():
                for hook in memory_hook.get_memory_hooks().values():
                    for i in range(2):
                        hook.malloc_preprocess(device_id=0, size=1000, mem_size=1024)
                        hook.alloc_preprocess(device_id=0, mem_size=1024)
                        hook.alloc_postprocess(device_id=0, mem_size=1024, mem_ptr=140000000000000)
                        hook.malloc_postprocess(device_id=0, size=1000, mem_size=1024, mem_ptr=140000000000000, pmem_id=1 << 63)
                        hook.free_preprocess(device_id=0, mem_size=1024, mem_ptr=140000000000000, pmem_id=1 << 63)
                        hook.free_postprocess(device_id=0, mem_size=1024, mem_ptr=140000000000000, pmem_id=1 << 63)
            work()
            t = threading.Thread(target=work); t.start(); t.join()
            """
        )
        one = [malloc(skip, acquired=True) + free(skip) for skip in (1, 0, 0, 0)]
        TestCuPy.check(self, log, *one)
        self.assertEqual(out + err, "")


class TestSitecustomize(Case):
    def test_imports_nothing_but_sys(self):
        ours = set(self.run_python("import sys; print(*sorted(sys.modules))")[1].split())
        bare = set(self.run_python("import sys; print(*sorted(sys.modules))", PYTHONPATH=None)[1].split())
        self.assertEqual(ours - bare, {"sitecustomize"} - bare)

    def test_next_one_runs_and_stands_in_sys_modules(self):
        theirs = self.write(
            "theirs/sitecustomize.py", "import sys; sys.path.append('/added'); print('theirs', __file__); NAME = 'theirs'"
        )
        for package in (PACKAGE, PACKAGE + "/"):
            with self.subTest(package):
                _, out, err = self.run_python(
                    "import sys, sitecustomize; print(sitecustomize.NAME, sys.path[1:3], sys.path[-1])",
                    PYTHONPATH=os.pathsep.join([package, theirs]),
                )
                self.assertEqual(out, "theirs %s/sitecustomize.py\ntheirs %s /added\n" % (theirs, [PACKAGE, theirs]))
                self.assertEqual(err, "")

    def test_errors_of_the_next_one_are_reported_as_without_us(self):
        for body in ("raise ValueError('bad')", "import no_such_module", "import sys; del sys.path[0]"):
            with self.subTest(body):
                theirs = self.write("theirs/sitecustomize.py", body)
                with_us = self.run_python("print('on')", path=[theirs])[1:]
                without = self.run_python("print('on')", PYTHONPATH=theirs)[1:]
                self.assertEqual(with_us, without)

    def test_absent_under_flags(self):
        for flag in ("-S", "-I", "-E"):
            with self.subTest(flag):
                _, out, _ = self.run_python(
                    "import sys; print([type(f).__name__ for f in sys.meta_path if 'CuPy' in repr(f)])", flags=[flag]
                )
                self.assertEqual(out, "[]\n")

    def test_loader_of_cupys_module_is_its_own_again(self):
        _, out, _ = self.run_python(
            """
            import sys, cupy.cuda.memory_hook as m
            print(type(m.__spec__.loader).__name__, vars(m.__spec__.loader).keys() - {"name", "path"})
            print([f for f in sys.meta_path if "CuPy" in repr(f)])
            """,
            path=[STANDIN],
        )
        self.assertEqual(out, "SourceFileLoader set()\n[]\n")

    def test_a_broken_package_does_not_break_the_import_of_cupy(self):
        copy = os.path.join(self.dir, "copy")
        os.mkdir(copy)
        shutil.copy(os.path.join(PACKAGE, "sitecustomize.py"), copy)
        self.write("copy/gpurec/__init__.py", "raise RuntimeError('broken')")
        _, out, err = self.run_python("import cupy; print('on')", PYTHONPATH=os.pathsep.join([copy, STANDIN]))
        self.assertEqual((out, err), ("on\n", ""))


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
        log, _, _ = self.run_python("import gpurec; gpurec.mark('m')", LD_PRELOAD=None, GPUREC_HOOK=STUB)
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
            "coroutine": (
                "import asyncio\n@scope('c')\nasync def c(): await asyncio.sleep(0); gpurec.mark('in')\nasyncio.run(c())",
                ["scope_begin c - -> 1", "mark in", "scope_end 1"],
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
                "with scope('\\udc80é'): pass",
                ["scope_begin ?é - -> 1", "scope_end 1"],
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


class TestDemo(Case):
    def test_says_what_is_missing_where_there_is_no_driver(self):
        # An empty file under the driver's name: dlopen refuses it, also where there is a real one.
        self.write("lib/libcuda.so.1", "")
        _, out, err = self.run_python(
            "import gpurec.demo as d; print(d.main())", LD_LIBRARY_PATH=os.path.join(self.dir, "lib")
        )
        self.assertEqual(out, "1\n")
        self.assertTrue(re.search(r"^demo: no CUDA driver here \(.*\); try gpurec demo --simulate-gpu$", err), err)


if __name__ == "__main__":
    unittest.main()
