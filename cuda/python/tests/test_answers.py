"""Answers while the program runs, from the real recorder over the simulated GPU:
each is what gpuanalyze finds in the trace afterwards."""

import json
import os
import shutil
import sys
import unittest

from support import Case, analyze, record, recording_missing

# A driver and a pool over it, whose blocks are recorded as CuPy's.
PRELUDE = """
import ctypes, os, random, shutil, signal, sys, threading, time
import gpurec
from gpurec import *
from gpurec import _answer, _hook, _wire
from gpurec.demo import devices
device = devices()[0]
hook, object = _hook.library, iter(range(1, 1 << 60))
hook.gpurec_pool_alloc.argtypes = [ctypes.c_uint32, ctypes.c_int32] + 2 * [ctypes.c_uint64] + 3 * [ctypes.c_int64] + [ctypes.c_int32, ctypes.c_uint32, ctypes.c_int32]
hook.gpurec_pool_free.argtypes = [ctypes.c_uint32, ctypes.c_int32, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int32]
class Block:
    def __init__(self, size):
        self.address, self.object = device.alloc(size + 4096), next(object)
        hook.gpurec_pool_alloc(_wire.API_CUPY, 0, self.address, self.object, size, size, -1, 0, 0, 0)
    def free(self):
        hook.gpurec_pool_free(_wire.API_CUPY, 0, self.address, self.object, 0)
        device.free(self.address)
def patient(ask):
    "The answer, however busy the machine is."
    end = time.monotonic() + 30
    while time.monotonic() < end:
        try:
            return ask()
        except NoAnswer as e:
            if not e.late: raise
            time.sleep(0.001)
    raise SystemExit("no answer in 30 seconds")
"""


@unittest.skipIf(recording_missing(), recording_missing())
class TestAnswers(Case):
    def recorded(self, program, *flags, check=True):
        """Runs program in a recording; what it printed, and the trace."""
        path = os.path.join(self.dir, "program.py")
        with open(path, "w") as f:
            f.write(PRELUDE + program)
        trace = os.path.join(self.dir, "t.gpurec")
        p = record(trace, [sys.executable, path], ["--simulate-gpu", *flags], check=check, PYTHONIOENCODING="utf-8")
        self.assertEqual(p.stderr, "")
        return p.stdout, trace

    def contexts(self, trace, curve):
        return json.loads(analyze("contexts", "-q", "--json", "--curve", curve, trace))["scopes"]

    def test_live_is_what_the_trace_has(self):
        """Random scopes on several threads, nested, overlapping, reset, ended by other
        threads than their own, while all of them allocate."""
        out, trace = self.recorded(
            """
THREADS, SCOPES = 4, 60
said, lock, unanswered = [], threading.Lock(), [0]
warm = Block(1); warm.free()          # the process has a pool from the first scope on
passed = []                           # scopes for whichever thread comes to end them
def say(scope, note, measure):
    with lock: said.append((scope.ctx, note, scope.curve, measure.begin, measure.end, measure.max, measure.lost))
def end(scope):
    scope.stop()
    say(scope, None, patient(scope.measure))
def work(n):
    device.use()
    rng, blocks, scopes, made = random.Random(n), [], [], 0
    while made < SCOPES or scopes:
        step = rng.random()
        if step < 0.45:
            blocks.append(Block(rng.randrange(1, 1 << 16)))
        elif step < 0.7 and blocks:
            blocks.pop(rng.randrange(len(blocks))).free()
        elif step < 0.8 and made < SCOPES:
            scopes.append(GPUMemTrace(ctx="%d-%d" % (n, made), curve=rng.choice(["used", "acquired"]))); made += 1
        elif step < 0.85 and scopes:
            rng.choice(scopes).reset()
        elif step < 0.9 and scopes:
            scope, note = rng.choice(scopes), "note %d %d" % (n, next(object))
            try:
                say(scope, note, scope._scope.measure(_answer.REPORT, note))
            except NoAnswer:
                unanswered[0] += 1
        elif scopes and (made == SCOPES or step > 0.95):
            scope = scopes.pop(rng.randrange(len(scopes)))
            if step > 0.99:
                with lock: passed.append(scope)
            else:
                end(scope)
        elif step > 0.94 and passed:
            with lock: scope = passed.pop() if passed else None
            if scope: end(scope)
    for b in blocks: b.free()
threads = [threading.Thread(target=work, args=(n,)) for n in range(THREADS)]
for t in threads: t.start()
for t in threads: t.join()
while passed: end(passed.pop())
import json
print(json.dumps(said))
""",
            "--on-full",
            "wait",
        )
        said = json.loads(out)
        found = {}
        for curve in ("used", "acquired"):
            for s in self.contexts(trace, curve):
                found[s["name"], None, curve] = s["bytes"]
                for r in s.get("reports", ()):
                    found[s["name"], r["subcontext"], curve] = r["bytes"]
        ends = 0
        for name, note, curve, begin, end, most, lost in said:
            bytes = found[name, note, curve]
            self.assertEqual((begin, end, most, lost), (bytes["begin"], bytes["end"], bytes["max"], 0), (name, note, curve))
            ends += note is None
        self.assertEqual(ends, 240)
        self.assertTrue(any(s[5] > max(s[3], s[4]) for s in said), "no scope had a peak")

    def test_texts(self):
        """fastai's worked example, line for line, and again from the trace."""
        out, trace = self.recorded(
            """
MB = 1 << 20
def to(block, mb):
    block.free(); return Block(mb * MB)
warm, b = Block(900 * MB), Block(100 * MB)
m = GPUMemTrace(ctx="foobar")
m.report()
b = to(b, 350); b = to(b, 200); m.report("a")
b = to(b, 100); m.report("b")
b.free(); m.report("c")
m.stop(); warm.free(); m.report("frozen")
@gpu_mem_trace
def f(): return Block(10 * MB)
f()
with GPUMemTrace(): pass
"""
        )
        lines = ["     0      0 (foobar)", "   100    150 (foobar: a)", "     0    250 (foobar: b)", "  -100    250 (foobar: c)"]
        lines += ["  -100    250 (foobar: frozen)", "    10      0 (f: exit)", "     0      0 (exit)"]
        want = "".join("△Used Peaked MB: %s\n" % line for line in lines)
        if "unknown" not in out:  # a machine too busy to answer in 100 ms said so
            self.assertEqual(out, want)
        self.assertEqual(analyze("contexts", "-q", "--units", "fastai", "--curve", "used", trace), want)

    def test_what_fastais_own_tests_assert(self):
        rows = {
            "consume and reclaim": ("m = GPUMemTrace(); b = Block(16 * MB); show(m); b.free(); show(m)", "(16, 0) (0, 16)"),
            "up, down, and no reset between": (
                "m = GPUMemTrace(); a, b = Block(10 * MB), Block(15 * MB); b.free(); show(m); a.free(); show(m)\n"
                "a, b = Block(10 * MB), Block(15 * MB); b.free(); show(m); m.reset(); a.free(); show(m)",
                "(10, 15) (0, 25) (10, 15) (-10, 0)",
            ),
            "extra starts are harmless": ("m = GPUMemTrace()\nfor i in range(5): m.start()\nb = Block(5 * MB); show(m); b.free()", "(5, 0)"),
            "after a block": ("with GPUMemTrace(on_exit_report=False) as m: b = Block(20 * MB)\nb.free(); show(m); show(m)", "(20, 0) (20, 0)"),
            "stopped it is frozen, started it is new": (
                "m = GPUMemTrace(); b = Block(4 * MB); m.stop(); c = Block(2 * MB); show(m); m.start(); b.free(); show(m); c.free()",
                "(4, 0) (-4, 0)",
            ),
            "a peak of an instant": ("m = GPUMemTrace(); Block(100 * MB).free(); show(m)", "(0, 100)"),
            "nested, each with its own": (
                "out = GPUMemTrace(); kept = []\n"
                "for take, drop in ((4, 4), (2, 1), (2, 2)):\n"
                "    m = GPUMemTrace(); bs = [Block(256 * MB) for i in range(take)]\n"
                "    for b in bs[:drop]: b.free()\n"
                "    kept += bs[drop:]; m.stop(); show(m)\n"
                "show(out); kept[0].free()",
                "(0, 1024) (256, 256) (0, 512) (256, 768)",
            ),
            "begun on one thread, ended on another": (
                "m = GPUMemTrace(); b = Block(3 * MB); t = threading.Thread(target=m.stop); t.start(); t.join(); show(m); b.free()", "(3, 0)"
            ),
            "acquired": ("m = GPUMemTrace(curve='acquired'); a = device.alloc(32 * MB); device.free(device.alloc(8 * MB)); show(m); device.free(a)", "(32, 8)"),
            "del ends it": ("m = GPUMemTrace(); s = m._scope; del m; print(patient(s.measure).peaked)", "0"),
        }
        program = "MB = 1 << 20\nBlock(1).free()\ndef show(m): print('(%d, %d)' % patient(m.data))\n"
        for body, _ in rows.values():
            program += body + "\nprint('---')\n"
        out, _ = self.recorded(program)
        found = out.split("---\n")
        self.assertEqual(len(found), len(rows) + 1)
        for (name, (_, want)), got in zip(rows.items(), found):
            with self.subTest(name):
                self.assertEqual(" ".join(got.split("\n")).strip(), want)

    def test_max_memory(self):
        out, _ = self.recorded(
            """
a = scope("a")
first = Block(100)
with a:
    Block(1000).free()
    most = patient(lambda: max_memory(a))
    t = threading.Thread(target=lambda: print(patient(lambda: max_memory(a)) == most)); t.start(); t.join()
Block(5000)
print(most, patient(lambda: max_memory(a)), patient(lambda: measure(a)), patient(lambda: measure(a, "acquired")).peaked)
m = GPUMemTrace()
Block(70).free()
m.stop()
never = scope("never")
try: max_memory(never)
except NoAnswer as e: print(e)
print(patient(lambda: max_memory(m)) - patient(m.measure).begin)
for of in (None, "a"):
    try: max_memory(of)
    except TypeError as e: print(e)
"""
        )
        measure = "Measure(begin=100, end=100, max=1100, lost=0, layer='pool') 5096"
        self.assertEqual(out.splitlines()[:2], ["True", "1100 1100 " + measure])
        self.assertEqual(out.splitlines()[2], "the scope has not begun")

    def test_old_scopes_are_forgotten_and_that_is_said(self):
        out, _ = self.recorded(
            """
first, last = scope("first"), scope("last")
with first: pass
for i in range(3000):
    with last: pass
print(patient(lambda: max_memory(last)))
try: patient(lambda: max_memory(first))
except NoAnswer as e: print(e)
""",
            "--on-full",
            "wait",
        )
        self.assertEqual(out.splitlines()[0], "0")
        self.assertIn("does not know the scope", out)

    def test_nvml(self):
        out, _ = self.recorded(
            """
b = Block(64 << 20)
m = GPUMemTrace(curve="nvml")
end = time.monotonic() + 30
while time.monotonic() < end:          # a reading is on its way
    try:
        got = m.measure()
        if got.end > 64 << 20: break
    except NoAnswer: pass
    time.sleep(0.01)
print(got.end > 64 << 20, got.max >= got.end, repr(got.layer))
"""
        )
        self.assertEqual(out, "True True ''\n")

    def test_fork(self):
        out, _ = self.recorded(
            """
m, s = GPUMemTrace(ctx="parent"), scope("s").__enter__()
b = Block(100)
sys.stdout.flush()
pid = os.fork()
if pid == 0:
    try: m.data_bytes()
    except NoAnswer as e: print("child:", e)
    try: patient(lambda: max_memory(s))
    except NoAnswer as e: print("child:", "another process" in str(e))
    m.start()                          # the child's own
    print("child:", patient(m.data_bytes))
    sys.stdout.flush()
    os._exit(0)
print("child ended with", os.waitpid(pid, 0)[1])
print(patient(m.data_bytes), patient(lambda: max_memory(s)))
"""
        )
        want = ["child: the scope was begun in another process", "child: True", "child: MemData(used=0, peaked=0)"]
        self.assertEqual(out.splitlines(), want + ["child ended with 0", "MemData(used=100, peaked=0) 100"])

    def test_exec(self):
        """Scopes end where the program does that began them; the next one's numbers are
        the same and its scopes its own."""
        out, trace = self.recorded(
            """
if len(sys.argv) == 1:
    m, s, h = GPUMemTrace(ctx="before"), scope("open").__enter__(), LineProfileHook().__enter__()
    b = Block(100)
    print(patient(m.data_bytes), patient(lambda: max_memory(s)), flush=True)
    os.execv(sys.executable, [sys.executable, __file__, str(s._id())])
number = int(sys.argv[1])
for how in (_answer.ONLY, _answer.REPORT, _answer.END):
    try: patient(lambda: _answer.ask(number, "used", how))
    except NoAnswer as e: print("before an exec" in str(e))
with GPUMemTrace(ctx="after", on_exit_report=False) as m, scope("open") as s:
    b = Block(50)
    print(s._id() >= number, patient(m.data_bytes), patient(lambda: max_memory(s)))
    with scope("number") as s: print(s._id() > number)
"""
        )
        self.assertEqual(out.splitlines(), ["MemData(used=100, peaked=0) 100", "True", "True", "True", "True MemData(used=50, peaked=0) 50", "True"])
        found = [(s["name"], s.get("open", False), s["bytes"]["begin"], s["bytes"]["end"]) for s in self.contexts(trace, "used")]
        want = [("before", True, 0, 100), ("open", True, 0, 100), ("LineProfileHook", True, 0, 100), ("after", False, 0, 50), ("open", False, 0, 50), ("number", False, 50, 50)]
        self.assertEqual(found, want)

    def test_tasks_that_enter_one_object(self):
        out, trace = self.recorded(
            """
import asyncio
one, said = scope("one"), {}
async def task(i, events):
    with one:
        b = Block(1000 * (i + 1))
        await events[i].wait()             # all have entered: they leave in the order of entry
        said[i] = patient(lambda: measure(one))[:3]
        b.free()
    events[i + 1].set()
    said[i] += patient(lambda: measure(one))[:3] if i == 2 else ()
async def main():
    events = [asyncio.Event() for i in range(4)]
    tasks = [asyncio.ensure_future(task(i, events)) for i in range(3)]
    await asyncio.sleep(0)
    events[0].set()
    await asyncio.gather(*tasks)
Block(1).free()
asyncio.run(main())
print(said[0], said[1], said[2])
"""
        )
        self.assertEqual(out, "(0, 6000, 6000) (1000, 5000, 6000) (3000, 3000, 6000, 3000, 0, 6000)\n")
        found = [tuple(s["bytes"][k] for k in ("begin", "end", "max")) for s in self.contexts(trace, "used")]
        self.assertEqual(found, [(0, 5000, 6000), (1000, 3000, 6000), (3000, 0, 6000)])

    def test_ctrl_c_while_waiting(self):
        """It comes through, and the scope ends all the same."""
        out, trace = self.recorded(
            """
import contextlib, io
gpurec_run = os.getppid()
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's job in the background begins with it ignored
outer, a, interrupted = GPUMemTrace(), scope("a"), 0
def stopped(on):
    os.kill(gpurec_run, signal.SIGSTOP if on else signal.SIGCONT)
    while (open("/proc/%d/stat" % gpurec_run).read().rpartition(")")[2].split()[0] == "T") != on: time.sleep(0.001)
def block():
    with GPUMemTrace(ctx="block"): pass
def decorated(): gpu_mem_trace(block)()
for ask in (outer.data, outer.report, block, decorated, lambda: a.__enter__() and max_memory(a)):
    patient(outer.data_bytes)
    stopped(True)
    # The other thread runs when the interpreter's lock is free, which is while this one waits.
    go = threading.Event()
    t = threading.Thread(target=lambda: go.wait() and signal.pthread_kill(threading.main_thread().ident, signal.SIGINT))
    t.start()
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            go.set()
            while True:
                try: ask()
                except NoAnswer: pass
                time.sleep(0.001)          # a busy machine: the signal comes later
    except KeyboardInterrupt:
        interrupted += 1
    t.join()
    stopped(False)
print(interrupted, outer._running, patient(outer.data_bytes))
outer.stop()
while a._open: a.__exit__()
"""
        )
        self.assertEqual(out, "5 True MemData(used=0, peaked=0)\n")
        self.assertEqual([s["name"] for s in self.contexts(trace, "used") if s.get("open")], [])

    def test_recorder_killed(self):
        """Who asks later is told so at once: never that an answer took too long, nor
        that there is no room, as nobody empties a buffer any more; also once the
        next recorder that starts has removed its socket."""
        for swept in False, True:
            with self.subTest(swept=swept):
                self.recorder_killed(swept)

    def recorder_killed(self, swept):
        out, trace = self.recorded(
            """
m = GPUMemTrace(ctx="a")
patient(m.data_bytes)
os.kill(os.getppid(), signal.SIGKILL)
if %r: shutil.rmtree(os.path.dirname(os.environ["GPUREC_SOCKET"]))
end = time.monotonic() + 30
while time.monotonic() < end:          # a busy machine takes its time to kill
    try:
        m.data_bytes()
    except NoAnswer as e:
        if not e.late: break
    time.sleep(0.001)
said = set()
for i in range(10000):                 # more marks than fit
    if i %% 100 == 0:
        try: m.data_bytes()
        except NoAnswer as e: said.add(str(e))
    gpurec.mark("%%0200d" %% i)
m.report("b"); m.stop(); m.report("c")
print(said)
"""
            % swept,
            check=False,
        )
        shutil.rmtree(trace)
        unknown = "△Used Peaked MB: unknown (a: %s) [the recording has ended]\n"
        self.assertEqual(out, unknown % "b" + unknown % "c" + "{'the recording has ended'}\n")

    def test_recorder_stopped(self):
        """A recorder that does not run: nobody waits for it twice, and when it runs
        again it answers again."""
        out, _ = self.recorded(
            """
m = GPUMemTrace()
patient(m.data_bytes)
gpurec_run = os.getppid()
os.kill(gpurec_run, signal.SIGSTOP)
while open("/proc/%d/stat" % gpurec_run).read().rpartition(")")[2].split()[0] != "T": time.sleep(0.001)
import resource
def sleeps(): return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
said, before = set(), sleeps()
for i in range(300):
    try: m.data_bytes()
    except NoAnswer as e: said.add(str(e))
slept = sleeps() - before
os.kill(gpurec_run, signal.SIGCONT)
print(said, slept < 100, patient(m.data_bytes))
"""
        )
        self.assertEqual(out, "{'gpurec did not answer within 100 ms'} True MemData(used=0, peaked=0)\n")

    def test_nothing_is_left_open(self):
        out, _ = self.recorded(
            """
m = GPUMemTrace()
def look(): return sorted((n, os.readlink("/proc/self/fd/" + n)) for n in os.listdir("/proc/self/fd") if os.path.lexists("/proc/self/fd/" + n))
before = look()
for i in range(50): patient(m.data_bytes)
ctypes.set_errno(0)
print(look() == before)
"""
        )
        self.assertEqual(out, "True\n")


if __name__ == "__main__":
    unittest.main()
