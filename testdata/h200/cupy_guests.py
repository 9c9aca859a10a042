"""Programs with ways of their own, which must behave under gpurec as without it.

    python3 cupy_guests.py PROGRAM [ARGUMENT]      one of them
    python3 cupy_guests.py --compare DIRECTORY     each of them bare and recorded, as a table

Two runs are equal in what they print on both streams and in how they end. And
what each process took from CuPy's pool, by its own count, must be in the trace.
gpurec and gpuanalyze are those on PATH. Works on whatever is named cupy: the
tests of the Python package run it over their stand-in.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import warnings

import _thread

COUNTS = "GUEST_COUNTS"  # a file to which each process adds a line: its pid, and how often it took memory
CUPY = "GUEST_CUPY"  # a directory to find cupy in, for an interpreter that neither PYTHONPATH nor site reaches

SITE = """
import importlib.abc, sys

class Finder(importlib.abc.MetaPathFinder):
    "The program's own hook on the same import as gpurec's."
    def find_spec(self, name, path=None, target=None):
        if name != "cupy.cuda.memory_hook":
            return None
        sys.meta_path.remove(self)
        from importlib.machinery import PathFinder
        spec = PathFinder.find_spec(name, path, target)
        run = spec.loader.exec_module
        def exec_module(module):
            run(module)
            print("theirs: after", module.__name__)
        spec.loader.exec_module = exec_module
        return spec

sys.meta_path.insert(0, Finder())
sys.path.append("/added/by/sitecustomize")
print("theirs: sitecustomize", __name__, __file__ == sys.modules["sitecustomize"].__file__)
"""


def counted(times):
    with open(os.environ[COUNTS], "a") as f:
        f.write("%d %d\n" % (os.getpid(), times))


def take(sizes):
    """Takes and gives back memory of a pool, three times; what it was asked for."""
    import cupy

    pool = cupy.cuda.MemoryPool()
    for _ in range(3):
        kept = [pool.malloc(n) for n in sizes]
        del kept
    counted(3 * len(sizes))
    return sum(sizes)


# ---- the programs ---------------------------------------------------------------


def hooks():
    """Enters and leaves hooks of its own, in every order, and on threads."""
    import cupy
    from cupy.cuda import memory_hook

    class Own(memory_hook.MemoryHook):
        def __init__(self, name):
            self.name, self.told = name, []

        def malloc_postprocess(self, **told):
            self.told.append((told["size"], told["mem_size"], told["mem_ptr"] != 0, sorted(told)))

        def free_postprocess(self, **told):
            self.told.append(("free", told["mem_size"], sorted(told)))

    pool, first, second = cupy.cuda.MemoryPool(), Own("first"), Own("second")
    with first:
        kept = [pool.malloc(100)]
        with second:
            kept.append(pool.malloc(1000))
        del kept[0]
        try:
            first.__enter__()
        except KeyError as e:
            print("KeyError", e)
    first.__enter__(), second.__enter__(), first.__exit__(None, None, None)
    kept.append(pool.malloc(3000))
    second.__exit__(None, None, None)
    try:
        second.__exit__(None, None, None)
    except KeyError as e:
        print("KeyError", e)

    def work():
        with second:
            kept.append(pool.malloc(5000))
            kept.clear()

    t = threading.Thread(target=work)
    t.start()
    t.join()
    pool.malloc(7000)
    print(json.dumps([first.told, second.told], indent=1))
    counted(5)


def workers(method):
    """Workers that take memory, forked or begun anew, before and after the parent takes some."""
    import multiprocessing

    context = multiprocessing.get_context(method)
    if method != "fork":
        take((100,))  # CUDA cannot be used in a fork after this
    with context.Pool(2) as pool:
        print(pool.map(take, [(1000, 2000), (3000,), (4000, 5000, 6000), (7000,)], chunksize=1))
        pool.close()
        pool.join()
    print(take((8000, 9000)))


def inherited():
    """Forks while it holds memory; the child lets go of what it inherited and uses no GPU."""
    import cupy

    pool = cupy.cuda.MemoryPool()
    kept = [pool.malloc(n) for n in (1000, 2000)]
    counted(2)
    child = os.fork()
    if child == 0:
        del kept[0]
        print("child", len(kept), flush=True)
        os._exit(7)
    print("parent", len(kept), os.waitpid(child, 0)[1] >> 8)


def early():
    """Takes memory on threads that ran before CuPy was imported, of either kind, and on the main one."""
    go, done = threading.Event(), threading.Event()

    def work():
        go.wait()
        print(take((1000, 2000)))
        done.set()

    t = threading.Thread(target=work)
    t.start()
    import cupy  # noqa: F401

    go.set()
    t.join()
    done.clear()
    _thread.start_new_thread(work, ())
    done.wait()
    print(take((3000,)))


def site():
    """Runs below a sitecustomize of its own, which follows CuPy's import as gpurec's does."""
    import sitecustomize

    print(sitecustomize.__name__, sys.path[-1], [type(f).__name__ for f in sys.meta_path if type(f).__name__ == "Finder"])
    print(take((1000, 2000)), [type(f).__name__ for f in sys.meta_path if type(f).__name__ == "Finder"])


def isolated():
    """Runs under -I, -E or -S: gpurec's sitecustomize is not there, under the first two nor is its package."""
    if sys.flags.ignore_environment:
        try:
            import gpurec  # noqa: F401
        except ImportError as e:
            print(e)
    print(sys.flags.isolated, sys.flags.no_site, "sitecustomize" in sys.modules, take((1000, 2000)))


def fails():
    """Ends in an exception out of CuPy's pool."""
    import cupy

    pool = cupy.cuda.MemoryPool()
    kept = pool.malloc(1000)
    counted(2)
    pool.malloc(1 << 45)
    print("not reached", kept)


def interrupted():
    """Ends by a signal that it sends itself, while a thread takes memory."""
    import cupy

    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's job in the background begins with it ignored
    pool, stop = cupy.cuda.MemoryPool(), threading.Event()

    def work():
        times = 0
        while times < 1000 and not stop.is_set():
            pool.malloc(1000)
            times += 1
        stop.wait()
        counted(times)

    t = threading.Thread(target=work)
    t.start()
    try:
        os.kill(os.getpid(), signal.SIGINT)
        while True:
            pass
    except KeyboardInterrupt:
        print("interrupted")
    finally:
        stop.set()
        t.join()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGTERM)


PROGRAMS = {f.__name__: f for f in (hooks, workers, inherited, early, site, isolated, fails, interrupted)}

# What is run: a title, the interpreter's options, the program.
ROWS = (
    ("hooks of its own", (), ("hooks",)),
    ("forks workers", (), ("workers", "fork")),
    ("spawns workers", (), ("workers", "spawn")),
    ("workers of a forkserver", (), ("workers", "forkserver")),
    ("forks and lets go", (), ("inherited",)),
    ("threads before CuPy", (), ("early",)),
    ("its own sitecustomize", (), ("site",)),
    ("python -I", ("-I",), ("isolated",)),
    ("python -E", ("-E",), ("isolated",)),
    ("python -S -s", ("-S", "-s"), ("isolated",)),
    ("out of memory", (), ("fails",)),
    ("signals", (), ("interrupted",)),
)


# ---- bare and recorded ----------------------------------------------------------


def run(command, environment, counts):
    """(what it printed and how it ended, as a shell has it; pid → times it took memory)"""
    open(counts, "w").close()
    p = subprocess.run(
        command,
        env=dict(environment, **{COUNTS: counts}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
        timeout=100,
    )
    by = {}
    with open(counts) as f:
        for line in f:
            pid, times = map(int, line.split())
            by[pid] = by.get(pid, 0) + times
    # CuPy's malloc has a branch for threads with hooks, a few lines from the one
    # without: a traceback names the line of it, whoever the hook is.
    stderr = re.sub(r"(memory\.pyx\", line) \d+", r"\1 N", p.stderr)
    return (p.stdout, stderr, p.returncode if p.returncode >= 0 else 128 - p.returncode), by


def recorded(trace):
    """pid → how often memory was taken from CuPy's pool, by the trace."""
    from compare import events  # not at the top: under -I this directory is not on the path

    twin = trace + ".txt"
    with open(twin, "w") as f:
        subprocess.run(["gpuanalyze", "events", "-q", trace], check=True, stdout=f)
    with open(twin) as f:
        words = [line.split(" ", 3) for line in f if line.startswith("process ")]
    pids, by = {number: int(pid.partition("=")[2]) for _, number, pid, _ in words}, {}
    for e in events(twin):
        if e["kind"] in ("Alloc", "AllocFailed") and e["api"] == "cupy":
            pid = pids[e.get("process", "1")]
            by[pid] = by.get(pid, 0) + 1
    return by


def compare(directory, flags=(), python=sys.executable, say=print, **environment):
    """Runs every row both ways; the number of rows that differ."""
    os.makedirs(directory, exist_ok=True)
    site_directory = tempfile.mkdtemp(dir=directory)
    with open(os.path.join(site_directory, "sitecustomize.py"), "w") as f:
        f.write(SITE)
    path = environment.get("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    differ = 0
    say("%-24s %6s %10s %10s  %s" % ("program", "exit", "taken", "in trace", "verdict"))
    for title, options, program in ROWS:
        here = dict(os.environ, PYTHONDONTWRITEBYTECODE="1", **environment)
        if program == ("site",):
            here["PYTHONPATH"] = os.pathsep.join(p for p in (site_directory, path) if p)
        command = [python, *options, os.path.abspath(__file__), *program]
        trace = os.path.join(directory, title.replace(" ", "-") + ".gpurec")
        counts = os.path.join(site_directory, "counts")
        bare, once = run(command, here, counts)
        with_us, by = run(["gpurec", "run", "-q", "-o", trace, *flags, "--", *command], here, counts)
        seen = recorded(trace)
        # Where PYTHONPATH or site is left out the pool is not recorded: the driver's calls alone are.
        want = {} if options else by
        what = [w for w, a, b in zip(("stdout", "stderr", "exit"), bare, with_us) if a != b]
        # A signal comes when it comes; and which worker gets which piece of work is chance.
        if program != ("interrupted",) and sum(once.values()) != sum(by.values()):
            what.append("taken")
        if not sum(by.values()):
            what.append("nothing taken")
        if seen != want:
            what.append("events")
        differ += bool(what)
        verdict = "differs: " + ", ".join(what) if what else "ok"
        say("%-24s %6d %10d %10d  %s" % (title, bare[2], sum(by.values()), sum(seen.values()), verdict))
        for name, texts in (("bare", bare), ("recorded", with_us)):
            if what:
                say("  %s: %r" % (name, texts))
    say("%d program(s) differ" % differ)
    return differ


def main(arguments):
    if len(arguments) == 2 and arguments[0] == "--compare":
        return 1 if compare(arguments[1]) else 0
    if not arguments or arguments[0] not in PROGRAMS:
        return "usage: cupy_guests.py --compare DIRECTORY | " + " | ".join(PROGRAMS)
    if os.environ.get(CUPY):
        sys.path.append(os.environ[CUPY])
    warnings.simplefilter("ignore", DeprecationWarning)  # of fork beside CUDA's threads: it names the pid
    PROGRAMS[arguments[0]](*arguments[1:])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
