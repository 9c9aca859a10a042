"""What CuPy's own tests assert of its memory hooks, and the order of every callback.

    python3 cupy_hooks.py RAW >bare.jsonl
    gpurec run -o hooks.gpurec -- python3 cupy_hooks.py RAW >recorded.jsonl

Each case prints a line of JSON: its name, what a spying hook was told, with
addresses and ids as p1, o1 in the order in which they came, and what does not
hold, if anything. The lines must be the same recorded and bare. RAW gets what
the spies were told as it was, for what stands between the marks CASE and "-" of
the trace; `python3 cupy_hooks.py --trace EVENTS RAW` compares the two.
"""

import gc
import io
import json
import sys
import threading

import cupy
from cupy.cuda import memory, memory_hook, memory_hooks

try:
    import gpurec
except ImportError:  # bare
    gpurec = None

CASES = []


class Spy(memory_hook.MemoryHook):
    """Keeps all that it is told."""

    def __init__(self, name="spy", log=None):
        self.name, self.log = name, [] if log is None else log


def spying(callback):
    def call(self, **told):
        self.log.append((self.name, callback, told))

    return call


for _callback in ("alloc", "malloc", "free"):
    for _when in ("preprocess", "postprocess"):
        setattr(Spy, _callback + "_" + _when, spying(_callback + "_" + _when))


def case(function):
    CASES.append(function)
    return function


class Wrong(AssertionError):
    pass


def equal(got, want):
    if got != want:
        raise Wrong("%r, not %r" % (got, want))


def raises(error, call, *arguments):
    """The text of the error that the call must end in."""
    try:
        call(*arguments)
    except error as e:
        return str(e)
    raise Wrong("no %s" % error.__name__)


def names(log):
    return [callback[: callback.index("_") + 4] for _, callback, _ in log]


MISS = ["malloc_pre", "alloc_pre", "alloc_pos", "malloc_pos"]
HIT = ["malloc_pre", "malloc_pos"]
FREE = ["free_pre", "free_pos"]
TRY = ["alloc_pre", "alloc_pos"]


@case
def counts_and_arguments(spy):
    pool, live = cupy.cuda.MemoryPool(), []
    for _ in range(2):
        m = pool.malloc(1)
        live.append((m.mem.ptr, id(m.mem)))
        del m
    equal(names(spy.log), MISS + FREE + HIT + FREE)
    (ptr, number), (again, second) = live
    one, rounded = dict(device_id=0, size=1, mem_size=512), dict(device_id=0, mem_size=512)
    block, other = dict(mem_ptr=ptr, pmem_id=number), dict(mem_ptr=again, pmem_id=second)
    equal(
        [told for _, _, told in spy.log],
        [one, rounded, dict(rounded, mem_ptr=ptr), dict(one, **block), dict(rounded, **block), dict(rounded, **block)]
        + [one, dict(one, **other), dict(rounded, **other), dict(rounded, **other)],
    )


@case
def debug_print(spy):
    out, pool, ids = io.StringIO(), cupy.cuda.MemoryPool(), []
    with memory_hooks.DebugPrintHook(file=out):
        for _ in range(2):
            m = pool.malloc(1)
            ids.append((m.mem.ptr, hex(id(m.mem))))
            del m
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    equal([line["hook"] for line in lines], ["alloc", "malloc", "free", "malloc", "free"])
    for line, (ptr, number) in zip(lines, [ids[0], ids[0], ids[0], ids[1], ids[1]]):
        want = dict(hook=line["hook"], device_id=0, mem_size=512, mem_ptr=ptr)
        if line["hook"] != "alloc":
            want["pmem_id"] = number
        if line["hook"] == "malloc":
            want["size"] = 1
        equal(line, want)


def profiled(make, depth):
    """The report of two mallocs, of which the first finds a block of its size."""
    pool = cupy.cuda.MemoryPool()
    pool.malloc(1000)
    hook = make(depth)
    with hook:
        kept = [pool.malloc(1000)]
        kept.append(pool.malloc(2000))
    out = io.StringIO()
    hook.print_report(file=out)
    return out.getvalue()


def print_report(spy, make):
    text = profiled(make, 0)
    equal(text[: len("_root (3.00KB, 2.00KB)\n")], "_root (3.00KB, 2.00KB)\n")
    lines = [line for line in text.splitlines() if ":profiled (" in line]
    equal([line[line.index("(") :] for line in lines], ["(1.00KB, 0.00B)", "(2.00KB, 2.00KB)"])
    equal([len(profiled(make, depth).split("\n")) for depth in (1, 2)], [2, 3])


@case
def line_profile(spy):
    print_report(spy, memory_hooks.LineProfileHook)


@case
def line_profile_of_gpurec(spy):
    theirs = memory_hooks.LineProfileHook  # bare, so that a spy is told the same
    print_report(spy, gpurec.LineProfileHook if gpurec else theirs)


@case
def rounding(spy):
    pool = cupy.cuda.MemoryPool()
    kept = [pool.malloc(n) for n in (1, 511, 512, 513, 1024, 1025)]
    sizes = [told["mem_size"] for _, callback, told in spy.log if callback == "malloc_postprocess"]
    equal(sizes, [512, 512, 512, 1024, 1024, 1536])
    equal(len(kept), 6)


@case
def zero_bytes(spy):
    m = cupy.cuda.MemoryPool().malloc(0)
    equal(type(m.mem), memory.Memory)
    last = spy.log[-1][2]
    equal((last["size"], last["mem_size"], last["mem_ptr"], last["pmem_id"]), (0, 0, 0, id(m.mem)))
    del m
    equal(names(spy.log), HIT)


@case
def freed_twice(spy):
    pool = cupy.cuda.MemoryPool()
    m = pool.malloc(1)
    m.mem.free()
    m.mem.free()
    equal(names(spy.log), MISS + FREE)


@case
def freed_through_an_offset(spy):
    pool = cupy.cuda.MemoryPool()
    m = pool.malloc(1000)
    start, far = m.mem.ptr, m + 100
    del m
    equal(names(spy.log), MISS)
    del far
    equal((names(spy.log), spy.log[-1][2]["mem_ptr"]), (MISS + FREE, start))


@case
def split_and_merged(spy):
    pool = cupy.cuda.MemoryPool()
    m = pool.malloc(2048)
    start = m.mem.ptr
    del m
    a, b = pool.malloc(512), pool.malloc(1536)
    equal((a.mem.ptr, b.mem.ptr), (start, start + 512))
    del a, b
    m = pool.malloc(2048)
    equal((m.mem.ptr, pool.used_bytes(), pool.total_bytes(), pool.free_bytes()), (start, 2048, 2048, 0))
    equal(names(spy.log), MISS + FREE + 2 * HIT + 2 * FREE + HIT)


@case
def free_all_blocks_says_nothing(spy):
    pool = cupy.cuda.MemoryPool()
    kept, _ = pool.malloc(512), pool.malloc(1 << 22)
    del _
    before = len(spy.log)
    pool.free_all_blocks()
    equal((len(spy.log) - before, pool.total_bytes(), kept.mem.size), (0, 512, 512))


@case
def out_of_memory(spy):
    pool = cupy.cuda.MemoryPool()
    text = raises(memory.OutOfMemoryError, pool.malloc, (1 << 45) + 1)
    equal(text, "Out of memory allocating 35,184,372,089,344 bytes (allocated so far: 0 bytes).")
    equal(names(spy.log), ["malloc_pre"] + 3 * TRY + ["malloc_pos"])
    last = spy.log[-1][2]
    equal((last["size"], last["mem_size"], last["mem_ptr"], last["pmem_id"]), ((1 << 45) + 1, (1 << 45) + 512, 0, 0))


@case
def limit_exceeded(spy):
    pool = cupy.cuda.MemoryPool()
    pool.set_limit(size=1024)
    text = raises(memory.OutOfMemoryError, pool.malloc, 4000)
    equal(text, "Out of memory allocating 4,096 bytes (allocated so far: 0 bytes, limit set to: 1,024 bytes).")
    equal(names(spy.log), HIT)


@case
def an_allocator_that_raises(spy):
    def broken(size):
        raise ValueError("broken")

    equal(raises(ValueError, cupy.cuda.MemoryPool(broken).malloc, 100), "broken")
    equal(names(spy.log), MISS)


@case
def two_hooks_in_order(spy):
    pool = cupy.cuda.MemoryPool()
    with Spy("second", spy.log):
        m = pool.malloc(1)
        del m
    equal([who for who, _, _ in spy.log], 6 * ["spy", "second"])
    equal(names(spy.log)[::2], MISS + FREE)


@case
def names_are_keys(spy):
    first, pool = Spy("first", spy.log), cupy.cuda.MemoryPool()
    with first:
        raises(KeyError, first.__enter__)
        raises(KeyError, Spy("first").__enter__)
        with memory_hooks.LineProfileHook():
            raises(KeyError, memory_hooks.LineProfileHook().__enter__)
    raises(KeyError, first.__exit__, None, None, None)
    second = Spy("second", spy.log)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)  # not the one entered last
    m = pool.malloc(1)
    second.__exit__(None, None, None)
    equal([who for who, _, _ in spy.log], 4 * ["spy", "second"])
    del m


@case
def a_free_on_another_thread(spy):
    pool = cupy.cuda.MemoryPool()
    kept, other = [pool.malloc(1)], Spy("other", spy.log)

    def work():
        with other:
            kept.clear()

    t = threading.Thread(target=work)
    t.start()
    t.join()
    equal(([who for who, _, _ in spy.log], names(spy.log)), (4 * ["spy"] + 2 * ["other"], MISS + FREE))


@case
def hooks_that_raise(spy):
    pool = cupy.cuda.MemoryPool()

    def bad(self, **told):
        raise ValueError("bad hook")

    for callback, seen in (("malloc_preprocess", ["malloc_pre"]), ("alloc_preprocess", ["malloc_pre", "alloc_pre", "malloc_pos"])):
        before = len(spy.log)
        with type("Bad", (memory_hook.MemoryHook,), {"name": "bad", callback: bad})():
            equal(raises(ValueError, pool.malloc, 512), "bad hook")
        equal(names(spy.log[before:]), seen)
    before = len(spy.log)
    m = pool.malloc(512)
    equal(names(spy.log[before:]), MISS)
    del m


@case
def two_pools_in_one(spy):
    inner = cupy.cuda.MemoryPool()
    outer = cupy.cuda.MemoryPool(inner.malloc)
    m = outer.malloc(1000)
    equal(names(spy.log), MISS[:2] + MISS + MISS[2:])
    del m, outer
    gc.collect()


def plain(log):
    """The log with addresses and ids by the order of their coming, as long as
    they are live: whether one comes again is chance."""
    known, count = {}, {"p": 0, "o": 0}
    out = []
    for who, callback, told in log:
        here = dict(told)
        for key, letter in (("mem_ptr", "p"), ("pmem_id", "o")):
            value = told.get(key)
            if value:
                # A malloc makes a new one, also where the end of the one before was not told.
                if (key, value) not in known or (callback == "malloc_postprocess" and key == "pmem_id"):
                    count[letter] += 1
                    known[key, value] = "%s%d" % (letter, count[letter])
                here[key] = known[key, value]
                if callback == "free_postprocess":
                    del known[key, value]
        out.append([who, callback, here])
    return out


def mark(text):
    if gpurec:
        gpurec.mark(text)


def main(raw):
    bad = 0
    with open(raw, "w") as f:
        for function in CASES:
            gc.collect()  # garbage of an earlier case would give back its memory in this one
            spy, wrong = Spy(), None
            mark(function.__name__)
            try:
                with spy:
                    function(spy)
            except Exception as e:
                wrong, bad = "%s: %s" % (type(e).__name__, e), bad + 1
            mark("-")
            told = list(spy.log)
            print(json.dumps({"case": function.__name__, "calls": plain(told), "wrong": wrong}, sort_keys=True), flush=True)
            print(json.dumps([function.__name__, [list(entry) for entry in told]]), file=f)
    return 1 if bad else 0


def told_by_spies(raw):
    """For each case, what the trace must have: (kind, api, size, requested, address, object) in order."""
    with open(raw) as f:
        for line in f:
            name, log = json.loads(line)
            want = []
            for who, callback, told in log:
                if who not in ("spy", "other"):
                    continue  # others on the spy's thread are told the same
                at, number = told.get("mem_ptr"), told.get("pmem_id")
                if callback == "malloc_postprocess":
                    want.append(("Alloc" if number else "AllocFailed", "cupy", told["mem_size"], told["size"], at, number))
                elif callback == "alloc_postprocess":
                    want.append(("Alloc" if at else "AllocFailed", "cupy.alloc", told["mem_size"], told["mem_size"], at, 0))
                elif callback == "free_preprocess":
                    want.append(("Free", "cupy", -1, -1, at, number))
            yield name, want


def compare(events, raw):
    """A table of cases: events of CuPy in the trace, and what the spies were told."""
    from compare import Table
    from compare import events as parse

    seen, at = {}, "-"
    for e in parse(events):
        if e["kind"] == "Mark":
            at = e["text"]
        elif e["api"].startswith("cupy"):
            seen.setdefault(at, []).append(tuple(e[k] for k in ("kind", "api", "size", "requested", "address", "object")))
    table, told = Table("what CuPy told a spying hook, and the trace"), dict(told_by_spies(raw))
    for name, want in told.items():
        got = seen.get(name, [])
        table.row(name, "events", len(want), len(got))
        if got != want:
            first = next((i for i, (a, b) in enumerate(zip(want, got)) if a != b), min(len(want), len(got)))
            table.row(name, "event %d" % (first + 1), want[first : first + 1], got[first : first + 1])
    table.row("all", "cases, and whether there were events", (len(CASES), True), (len(told), any(told.values())))
    return table.print()


if __name__ == "__main__":
    if len(sys.argv) == 4 and sys.argv[1] == "--trace":
        sys.exit(compare(*sys.argv[2:]))
    if len(sys.argv) != 2:
        sys.exit("usage: cupy_hooks.py RAW | --trace EVENTS RAW")
    sys.exit(main(sys.argv[1]))
