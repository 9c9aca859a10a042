"""Joins a trace with what the program printed, and says where they agree.

    gpuanalyze events train.gpurec >train.txt
    python3 compare.py torch train.txt train.jsonl
    python3 compare.py async async.txt async.jsonl
    python3 compare.py cupy cupy.txt cupy.jsonl
    python3 compare.py flavours flavours.txt flavours.jsonl
    python3 compare.py contexts contexts.json train.jsonl    gpuanalyze contexts --json
    python3 compare.py text A B                     two reports, byte by byte

Reads the text twin and folds it itself, in the plainest way, so that it shares
nothing with gpuanalyze but the events. Prints one table; exit 1 if any row
differs. A tolerance is never hidden: the row says what it is and why.
"""

import json
import re
import sys

MiB = 1 << 20
PAIR = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*"|\S+)')
NUMBERS = ("size", "requested", "allocated", "reserved", "device", "address", "object", "status", "thread", "name")
ASYNC = ("cuMemAllocAsync", "cuMemAllocAsync_ptsz", "cuMemAllocFromPoolAsync", "cuMemAllocFromPoolAsync_ptsz")
ARRAYS = ("cuArrayCreate_v2", "cuArray3DCreate_v2", "cuMipmappedArrayCreate")
ARRAY_FREES = ("cuArrayDestroy", "cuMipmappedArrayDestroy")
RESERVES = ("pool.reserve", "graph.reserve")  # what gpurec asked a pool itself; traces of before have none
PINNED = ("cuMemAllocHost_v2", "cuMemHostAlloc")


def events(path):
    """The events of a text twin, as dicts, in order; marks with their text."""
    names = {}
    with open(path, encoding="utf-8", errors="replace") as f:
        for line in f:
            if line.startswith("name "):
                _, number, text = line.rstrip("\n").split(" ", 2)
                names[int(number)] = json.loads(text) if "\\x" not in text else text
            elif line[0].isdigit():
                time, kind, rest = (line.rstrip("\n") + "  ").split(" ", 2)
                e = dict(size=-1, requested=-1, allocated=-1, device=-1, address=0, object=0, status=0, api="none")
                e.update(PAIR.findall(rest), time=int(time), kind=kind)
                for key in NUMBERS:
                    if isinstance(e.get(key), str):
                        e[key] = int(e[key], 0)
                e["flags"] = e.get("flags", "").split("|")
                e["text"] = names.get(e.get("name"), "")
                yield e


def printed(path):
    with open(path) as f:
        return [json.loads(line) for line in f if line.startswith("{")]


class Table:
    """Rows of (where, what, the program's value, the trace's value, verdict)."""

    def __init__(self, title):
        self.title, self.rows, self.bad = title, [], 0

    def row(self, where, what, theirs, ours, note=None):
        """note: None for rows that must be equal to the byte, else what explains the difference."""
        agree = theirs == ours or note is not None
        self.bad += not agree
        verdict = "agree" if theirs == ours else note if note is not None else "DIFFER"
        self.rows.append((where, what, str(theirs), str(ours), verdict))

    def fail(self, where, what):
        self.bad += 1
        self.rows.append((where, what, "", "", "DIFFER"))

    def print(self, head=("moment", "what", "program", "trace", "")):
        rows = [head] + self.rows
        widths = [max(len(r[i]) for r in rows) for i in range(5)]
        print("== %s" % self.title)
        for r in rows:
            left, right = r[:2], r[2:4]
            cells = [c.ljust(w) for c, w in zip(left, widths)] + [c.rjust(w) for c, w in zip(right, widths[2:4])]
            print("  ".join(cells + [r[4]]).rstrip())
        print("%d rows, %d differ\n" % (len(self.rows), self.bad))
        return 1 if self.bad else 0


class Fold:
    """Live bytes of what pick says belongs together, by the key it is found again under."""

    def __init__(self):
        self.live, self.bytes, self.peak, self.allocated, self.freed, self.unknown = {}, 0, 0, 0, 0, 0

    def take(self, key, size):
        if key in self.live:
            self.give(key)
            self.unknown += 1
        self.allocated += 1
        if size:  # a pool gives out 0 bytes without giving anything
            self.live[key] = size
        self.bytes += size
        self.peak = max(self.peak, self.bytes)

    def give(self, key):
        size = self.live.pop(key, None)
        if size is None:
            self.unknown += 1
            return None
        self.freed += 1
        self.bytes -= size
        return size


def space(e):
    """What an address means: which frees find which allocations."""
    api = e["api"]
    if api in ("torch", "cupy"):
        return api
    if api in ARRAYS or api in ARRAY_FREES:
        return "array"
    if api in PINNED or api in ("cuMemFreeHost", "cuMemHostRegister_v2", "cuMemHostUnregister"):
        return "host"
    if api in ("cuMemCreate", "cuMemRelease"):
        return "handle"
    return "device"


def key(e):
    s = space(e)
    return (e.get("process", "1"), s, e["object"] if s in ("cupy", "array", "handle") else e["address"])


def moments(trace, per_event):
    """Calls per_event for each event and yields (name, time) at each "moment:NAME"."""
    for e in trace:
        if e["kind"] == "Mark" and e["text"].startswith("moment:"):
            yield e["text"][len("moment:") :]
        else:
            per_event(e)


def unseen(table, rows, lines):
    """Fails the moments that the program printed and the trace does not have."""
    for name in rows:
        table.fail(str(name), "not in the trace")
    if not any("moment" in r or "step" in r for r in lines):
        table.fail("-", "the program printed nothing to compare")


def torch(trace, lines):
    """PyTorch's native allocator, to the byte: counts, live bytes and peak at each moment."""
    head, rows = lines[0], {r["moment"]: r for r in lines if "moment" in r}
    table = Table("PyTorch %s, %s %s" % (head["torch"], head["backend"], head["conf"]))
    fold, driver, own = Fold(), Fold(), [0, 0]

    def event(e):
        if e["api"] == "torch" and e["kind"] == "Alloc":
            fold.take(key(e), e["size"])
        elif e["api"] == "torch" and e["kind"] == "Free":
            fold.give(key(e))
        elif e["kind"] == "Mark" and e["text"] == "peak-reset":
            fold.peak = fold.bytes
        elif e["kind"] == "Alloc" and e["api"] in ("cuMemAlloc_v2", "cuMemCreate"):
            driver.take(key(e), e["size"])
        elif e["kind"] in ("Free", "Release") and key(e) in driver.live:
            driver.give(key(e))
        if e["api"] == "torch" and e["kind"] in ("Alloc", "Free"):
            own[0] += 1
            own[1] += e["allocated"] != fold.bytes

    for name in moments(trace, event):
        r = rows.pop(name)
        table.row(name, "allocation.all.allocated", r["allocated"], fold.allocated)
        table.row(name, "allocation.all.freed", r["freed"], fold.freed)
        table.row(name, "memory_allocated", r["memory_allocated"], fold.bytes)
        table.row(name, "max_memory_allocated", r["max_memory_allocated"], fold.peak)
        table.row(name, "memory_reserved", r["memory_reserved"], driver.bytes, "for information: what other libraries take of the driver is in the trace too")
    unseen(table, rows, lines)
    table.row("every event", "live bytes beside PyTorch's own, %d events" % own[0], 0, own[1])
    table.row("-", "unknown and lost frees", 0, fold.unknown)
    return table.print()


def contexts(answer, lines):
    """gpuanalyze's own contexts beside PyTorch's one counter.

    The counter was reset at the begin of each evaluation-batch, so it says that
    range's peak; the range around them it cannot say, as it was reset inside.
    """
    head, rows = lines[0], {r["moment"]: r for r in lines if "moment" in r}
    table = Table("contexts of PyTorch %s, %s %s" % (head["torch"], head["backend"], head["conf"]))
    found = {(s["name"], s["n"]): s["bytes"] for s in answer["scopes"]}
    batches = [(i, rows["evaluation-%d" % i]) for i in range(3) if "evaluation-%d" % i in rows]
    nothing = dict(max=None, end=None, peaked=None, begin=None)
    for i, r in batches:
        b = found.get(("evaluation-batch", i + 1), nothing)
        where = "evaluation-batch#%d" % (i + 1)
        table.row(where, "peak: max_memory_allocated", r["max_memory_allocated"], b["max"])
        table.row(where, "end: memory_allocated", r["memory_allocated"], b["end"])
    if "trained" in rows:
        steps = [b["max"] for (name, _), b in found.items() if name == "step"]
        table.row("step", "largest peak of %d: max_memory_allocated" % len(steps), rows["trained"]["max_memory_allocated"], max(steps, default=None))
    if batches:
        outer = found.get(("evaluation", 1), nothing)
        table.row("evaluation", "peak: the largest of its batches'", max(r["max_memory_allocated"] for _, r in batches), outer["max"])
    if not table.rows:
        table.fail("-", "the program printed nothing to compare")
    return table.print(("context", "what", "PyTorch", "gpuanalyze", ""))


def asynchronous(trace, lines, rounding=512):
    """backend:cudaMallocAsync: the script's own count, and bytes within the driver's rounding."""
    head, rows = lines[0], {r["moment"]: r for r in lines if "moment" in r}
    table = Table("PyTorch %s, %s %s" % (head["torch"], head["backend"], head["conf"]))
    fold, symbol, start = Fold(), [0], None

    def event(e):
        if e["kind"] == "Alloc" and e["api"] in ASYNC:
            fold.take(key(e), e["size"])
        elif e["kind"] == "Free" and space(e) == "device" and key(e) in fold.live:
            fold.give(key(e))
        symbol[0] += e["api"] == "torch"

    for name in moments(trace, event):
        r = rows.pop(name)
        if name == "own-start":
            start = (fold.allocated, fold.freed, fold.bytes, len(fold.live))
        if "own_allocated" in r and start:
            table.row(name, "allocations, the script's count", r["own_allocated"], fold.allocated - start[0])
            table.row(name, "frees, the script's count", r["own_freed"], fold.freed - start[1])
            table.row(name, "bytes live, the script's sum", r["own_bytes"], fold.bytes - start[2])
            table.row(name, "live allocations", r["own_live"], len(fold.live) - start[3])
        more = r["memory_allocated"] - fold.bytes
        within = 0 <= more < rounding * max(1, len(fold.live))
        note = "%d more, within the driver's rounding: under %d for each of %d" % (more, rounding, len(fold.live))
        table.row(name, "memory_allocated", r["memory_allocated"], fold.bytes, note if within else None)
    unseen(table, rows, lines)
    table.row("-", "events of PyTorch's symbol (this backend has none)", 0, symbol[0])
    return table.print()


def cupy(trace, lines):
    """CuPy's pool: used and total bytes at each moment."""
    head, rows = lines[0], {r["moment"]: r for r in lines if "moment" in r}
    table = Table("CuPy %s" % head["cupy"])
    fold, driver, echo = Fold(), Fold(), [0, 0]

    def event(e):
        if e["api"] == "cupy" and e["kind"] == "Alloc" and "nested" not in e["flags"]:
            fold.take(key(e), e["size"])
        elif e["api"] == "cupy" and e["kind"] == "Free":
            fold.give(key(e))
        elif e["api"] == "cupy.alloc" and e["kind"] == "Alloc":
            echo[0] += e["size"]
        elif e["kind"] == "Alloc" and space(e) == "device" and "inpool" in e["flags"]:
            driver.take(key(e), e["size"])
            echo[1] += e["size"]
        elif e["kind"] == "Free" and key(e) in driver.live:
            driver.give(key(e))

    for name in moments(trace, event):
        r = rows.pop(name)
        table.row(name, "used_bytes", r["used_bytes"], fold.bytes)
        table.row(name, "total_bytes", r["total_bytes"], driver.bytes)
        table.row(name, "acquired so far: CuPy's alloc, the driver's calls inside", echo[0], echo[1])
    unseen(table, rows, lines)
    table.row("-", "unknown and lost frees", 0, fold.unknown)
    return table.print()


def flavours(trace, lines):
    """Each call with its size and class, and the device's free bytes explained.

    taken = live + pool + rest, where live is the change of live driver bytes of
    class device and array in the trace, and pool the change of what the pools
    reserve. What is left must be the driver's granularity.
    """
    table = Table("flavours")
    rows = {r["step"]: r for r in lines}
    live = {}  # key -> (layer, class, size)
    maps, released = {}, set()  # address -> handle; handles without a reference
    step, seen, began = 0, [], False
    layers = dict.fromkeys(ASYNC, "pool")
    classes = {**dict.fromkeys(ARRAYS, "array"), **dict.fromkeys(PINNED, "pinned")}
    classes.update(cuMemAllocManaged="managed", cuMemHostRegister_v2="registered")
    reserve, asks = {}, False  # what the pools hold, by the trace
    slack = 0  # bytes the device holds beyond what is live: at most a granule an allocation

    def of(e):
        layer = e.get("layer") or layers.get(e["api"]) or ("host" if space(e) == "host" else "driver")
        return layer, e.get("class") or classes.get(e["api"], "device")

    def on_device():
        return sum(s for layer, cls, s in live.values() if layer == "driver" and cls in ("device", "array"))

    before = reserved = owed = 0
    for e in trace:
        kind, k = e["kind"], key(e)
        if e["api"] in RESERVES:
            asks = True
            reserve.pop(e["object"], None)
            if kind == "Alloc":
                reserve[e["object"]] = e["size"]
            continue
        if kind == "Mark":
            if e["text"] == "start:0":
                began, seen, before = True, [], on_device()
                continue
            if not began or e["text"] != "step:%d" % step:
                if e["text"].startswith("step-between:"):
                    seen = []
                continue
            r = rows.pop(step)
            step += 1
            now, held = on_device(), sum(reserve.values())
            change, moved = now - before, held - reserved
            before, reserved = now, held
            # What a pool of the program's own lets go of as the program waits for its
            # stream is asked at that pool's next call.
            late, owed = owed, owed + r["pool_reserved"] - moved if asks else 0
            slack = explain(table, r, seen, change, slack, len(live), owed not in (0, late) and r["call"] != "cudaStreamSynchronize" and owed)
            seen = []
        elif kind == "Alloc":
            live[k] = (*of(e), e["size"])
            seen.append((e, *of(e), e["size"]))
        elif kind == "AllocFailed":
            seen.append((e, *of(e), e["requested"]))
        elif kind == "Map":
            maps[(k[0], e["address"])] = e["object"]
            seen.append((e, "driver", "device", 0))
        elif kind == "Unmap":
            handle = maps.pop((k[0], e["address"]), None)
            if handle in released:
                live.pop((k[0], "handle", handle), None)
            seen.append((e, "driver", "device", 0))
        elif kind == "Release":
            released.add(e["object"])
            if e["object"] not in maps.values():
                live.pop(k, None)
            seen.append((e, "driver", "device", 0))
        elif kind == "Free":
            gone = live.pop(k, None)
            if gone is not None:
                seen.append((e, *gone))
        elif kind == "Reset":
            for other in [o for o in live if o[0] == k[0]]:
                del live[other]
            reserved -= sum(reserve.values())
            reserve.clear()
            seen.append((e, "driver", "reset", 0))
    if owed:
        table.fail("end", "the pools hold %d bytes by the program that are not in the trace" % owed)
    unseen(table, rows, lines)
    return table.print(("step", "call: events", "asked", "in trace", "taken = live + pool + rest: cause"))


def explain(table, r, seen, change, slack, live, owed):
    """Adds the row of one step; returns the slack after it. owed: bytes by which what
    the pools hold differs from what the trace has of it, where it may not."""
    call, asked, cls = r["call"], r["asked"], r["class"]
    took = r["taken"]
    pool = r["pool_reserved"]
    rest = took - change - pool
    slack += rest
    names = ["%s %s %s" % (e["api"], layer, c) for e, layer, c, _ in seen]
    size = sum(s for e, _, _, s in seen if e["kind"] in ("Alloc", "AllocFailed"))
    what = "%s: %s" % (call, ", ".join(names) or "no event")
    wrong = []
    if cls == "reset" and [e["kind"] for e, *_ in seen] != ["Reset"]:
        wrong.append("no reset")
    if asked and size != asked:
        wrong.append("size %d" % size)
    if cls not in ("none", "reset") and not (seen and all(c == cls for _, _, c, _ in seen)):
        wrong.append("class is not %s" % cls)
    if r["status"] and not (len(seen) == 1 and seen[0][0]["kind"] == "AllocFailed" and seen[0][0]["status"]):
        wrong.append("the failure is not in the trace")
    if owed:
        wrong.append("%d bytes of the pools' reserve" % owed)
    if call == "cudaDeviceReset":
        # The question after the reset makes a new context; it may not be as large.
        cause = "everything came back; the new context differs by %d" % rest if not live else None
        slack = 0
    elif rest == 0:
        cause = "exact"
    elif 0 <= slack <= 2 * MiB * (live + 1) and abs(rest) <= 2 * MiB * (len(seen) + 1):
        cause = "2 MiB granularity: %s%d, %d held beyond live" % ("+" if rest > 0 else "", rest, slack)
    else:
        cause = None
    if cause is None:
        wrong.append("%d bytes unexplained" % rest)
        cause = "no cause found"
    if pool:
        cause += "; pool reserve"
    text = "%d = %d + %d + %d: %s" % (took, change, pool, rest, cause)
    if wrong:
        table.bad += 1
        text += "  DIFFER: " + ", ".join(wrong)
    table.rows.append((str(r["step"]), what, str(asked), str(size), text))
    return slack


def text(a, b):
    """Two reports, byte by byte."""
    with open(a, "rb") as f, open(b, "rb") as g:
        left, right = f.read(), g.read()
    table = Table("%s and %s" % (a, b))
    lines = list(zip(left.splitlines(), right.splitlines()))
    differing = [i for i, (x, y) in enumerate(lines) if x != y][:5]
    table.row("-", "bytes", len(left), len(right), None if left != right else "agree")
    table.row("-", "lines", len(left.splitlines()), len(right.splitlines()))
    table.row("-", "identical", True, left == right)
    for i in differing:
        table.row("line %d" % (i + 1), "text", lines[i][0].decode("utf-8", "replace"), lines[i][1].decode("utf-8", "replace"))
    if not left.strip():
        table.fail("-", "the first one is empty")
    return table.print(("line", "what", "first", "second", ""))


COMPARISONS = {"torch": torch, "async": asynchronous, "cupy": cupy, "flavours": flavours}


def main(args):
    if len(args) != 3 or args[0] not in (*COMPARISONS, "contexts", "text"):
        print(__doc__, file=sys.stderr)
        return 2
    if args[0] == "text":
        return text(*args[1:])
    if args[0] == "contexts":
        with open(args[1]) as f:
            return contexts(json.load(f), printed(args[2]))
    return COMPARISONS[args[0]](events(args[1]), printed(args[2]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
