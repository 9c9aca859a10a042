"""CuPy's pool: what reaches the hook, from which threads, and what stays as it was."""

import subprocess
import sys
import unittest

from support import STANDIN, Case


# What the hook is told for one malloc of 1000 bytes on device 0. Through ctypes the
# first call of each callback is made by a Python function of ours: one frame to skip.
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
    first = 0  # Python frames of ours in the first call of a callback

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
        self.check(log, malloc(self.first, acquired=True), free(self.first), malloc(0), free(0))

    def test_zero_bytes_have_an_id_and_no_address(self):
        log, _, _ = self.run_python(
            "import cupy; m = cupy.cuda.memory.Pool(cupy.cuda.memory.Device()).malloc(0)", path=[STANDIN]
        )
        self.check(log, malloc(self.first, address="0", size=0, rounded=0))

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
        end = malloc(self.first, address="0", object="0", status=-1)
        self.check(log, [end[0], failed % self.first, failed % 0, failed % 0], end[1:], malloc(0, True, size=1, rounded=512), free(self.first))

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
        self.check(log, malloc(self.first, True, size=1, rounded=512), outer[:1], inner, outer[1:])

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
            malloc(self.first, True, size=1, rounded=512),
            ["enter", "leave", "enter", "leave", "enter", "leave"],
            malloc(0, acquired=True),
        )

    early = "early [] ['gpurec']"  # a thread from before CuPy, before and after it first takes memory

    def test_every_thread(self):
        log, out, _ = self.run_python(
            """
            import threading, _thread
            before = threading.Event()
            def early():
                before.wait()
                at_first = list(cupy.cuda.memory_hook.get_memory_hooks())
                cupy.cuda.MemoryPool().malloc(0)
                print("early", at_first, list(cupy.cuda.memory_hook.get_memory_hooks()))
            t = threading.Thread(target=early); t.start()
            import cupy
            before.set(); t.join()
            def late(name):
                cupy.cuda.MemoryPool().malloc(0)
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
            [self.early] + [n + " ['gpurec']" for n in ("late", "sub", "pool", "foreign", "main")] + ["4"],
        )
        self.assertEqual(len([line for line in log if "api=202" in line]), 5 + ("gpurec" in self.early))

    def test_threads_that_cannot_be_followed(self):
        """CuPy's pool has read the table already: new threads are registered as they start."""
        _, out, _ = self.run_python(
            """
            import sys, threading
            sys.meta_path = [f for f in sys.meta_path if "CuPy" not in repr(f)]
            import cupy
            from gpurec import _cupy
            print(_cupy.install(cupy.cuda.memory_hook))
            def work(): print(list(cupy.cuda.memory_hook.get_memory_hooks()))
            t = threading.Thread(target=work); t.start(); t.join()
            """,
            path=[STANDIN],
        )
        self.assertEqual(out, "True\n['gpurec']\n")

    def test_tables_of_another_kind_are_left_alone(self):
        _, out, _ = self.run_python(
            """
            import cupy
            from gpurec import _hook
            good = cupy.cuda.memory_hook._keep
            has, get = (capsule for _, _, capsule in good)
            for table in {}, {"_has_memory_hooks": get, "get_memory_hooks": has}, {"_has_memory_hooks": 1, "get_memory_hooks": get}:
                before = dict(table)
                print(_hook.cupy_every_thread(table, "x", object()), table == before)
            """,
            path=[STANDIN],
            STUB_INACTIVE="1",
        )
        self.assertEqual(out, 3 * "0 True\n")

    def test_an_exception_on_its_way_stays(self):
        """A thread's first question comes while its frame is left by an exception."""
        log, out, _ = self.run_python(
            """
            import threading
            go = threading.Event()
            def early():
                go.wait()
                pool = cupy.cuda.MemoryPool()
                kept = []
                try:
                    try:
                        raise KeyError("theirs")
                    finally:
                        kept.append(pool.malloc(1000))
                except KeyError as e:
                    print(repr(e), len(kept))
            t = threading.Thread(target=early); t.start()
            import cupy
            go.set(); t.join()
            """,
            path=[STANDIN],
        )
        self.assertEqual(out, "KeyError('theirs') 1\n")

    def test_no_python_of_ours_runs_inside(self):
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
        self.check(log, malloc(self.first, acquired=True), free(self.first), malloc(self.first), free(self.first))
        self.assertEqual(err, "")

    def test_a_cupy_that_passes_something_else_is_left_alone(self):
        log, out, err = self.run_python(
            """
            import cupy
            hook = cupy.cuda.memory_hook.get_memory_hooks()["gpurec"]
            for i in range(2):
                hook.malloc_preprocess(device=0, bytes=1, rounded=512)
                hook.malloc_postprocess(0, device=0, bytes=1, rounded=512)
            for i in range(2): hook.free_preprocess(device_id=None, mem_size=1, mem_ptr=1, pmem_id=1)
            hook.alloc_postprocess(0, 1, 2)
            hook.free_postprocess(1, x=2)
            """,
            path=[STANDIN],
        )
        refused = "mark gpurec: CuPy's %s is not recorded: device_id is %s"
        self.assertEqual(
            log,
            ["enter", refused % ("malloc_postprocess", "missing"), "leave", "enter", "leave"]
            + [refused % ("free_preprocess", "no integer"), refused % ("alloc_postprocess", "missing")],
        )
        self.assertEqual(out + err, "")

    def test_arguments_in_any_order_under_equal_names(self):
        log, _, _ = self.run_python(
            """
            import cupy
            hook = cupy.cuda.memory_hook.get_memory_hooks()["gpurec"]
            given = dict(pmem_id=1 << 63, extra=None, mem_ptr=140000000000000, mem_size=1024, device_id=0)
            hook.free_preprocess(**{"".join(list(k)): v for k, v in given.items()})
            """,
            path=[STANDIN],
        )
        self.check(log, free(0))

    def test_no_reference_is_kept(self):
        _, out, _ = self.run_python(
            """
            import sys, cupy
            hook = cupy.cuda.memory_hook.get_memory_hooks()["gpurec"]
            id, name = 1 << 63, "pmem_id_"[:-1]
            watched = None, id, name, type(hook), hook.free_preprocess
            def call(pmem_id):
                hook.malloc_preprocess(device_id=0)
                hook.malloc_postprocess(device_id=0, size=1, mem_size=2, mem_ptr=3, pmem_id=pmem_id)
                hook.free_preprocess(**{"device_id": 0, "mem_size": 2, "mem_ptr": 3, name: pmem_id})
            call(id)
            before = [sys.getrefcount(o) for o in watched]
            for i in range(1000): call(id)
            for i in range(1000): call("text")
            print([abs(sys.getrefcount(o) - n) < 100 for o, n in zip(watched, before)])
            """,
            path=[STANDIN],
            STUB_LOG=None,
        )
        self.assertEqual(out, "[True, True, True, True, True]\n")


class TestThroughCtypes(TestCuPy):
    """The same where the hook finds no CPython to make its callbacks with."""

    first = 1
    stub_flags = ("-DNO_CPYTHON",)
    early = "early [] []"

    # Their answer to other arguments is the next test's; ctypes holds no references of ours.
    test_arguments_in_any_order_under_equal_names = None
    test_no_reference_is_kept = None
    test_an_exception_on_its_way_stays = None

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
        one = 4 * [malloc(0, acquired=True) + free(0)]
        TestCuPy.check(self, log, *one)
        self.assertEqual(out + err, "")


if __name__ == "__main__":
    unittest.main()
