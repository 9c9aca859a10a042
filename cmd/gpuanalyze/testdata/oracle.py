"""Answers of gpuanalyze, computed the slow and obvious way, from a trace's text.

It shares no code with gpuanalyze and was written from the definitions (used,
acquired, live, peak, scopes), not from its sources: what is live is a list, and
after every event every sum is added up from nothing.

    oracle.py random FIRST COUNT    a JSON line for each of so many random traces: their text and the answers
    oracle.py replay FILE...        a JSON line for each text twin: the answers

Only the standard library is used.
"""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from collections.abc import Callable

from oracle_traces import Generator

DEVICE, HOST, TORCH, OBJECT, HANDLE, NONE = "device", "host", "torch", "object", "handle", None

# What is known of each function or source: layer, class, and what names its memory.
APIS = {
    "cuMemAlloc_v2": ("driver", "device", DEVICE),
    "cuMemAllocPitch_v2": ("driver", "device", DEVICE),
    "cuMemAllocManaged": ("driver", "managed", DEVICE),
    "cuMemFree_v2": ("driver", "device", DEVICE),
    "cuMemAllocHost_v2": ("host", "pinned", HOST),
    "cuMemHostAlloc": ("host", "pinned", HOST),
    "cuMemFreeHost": ("host", "pinned", HOST),
    "cuMemHostRegister_v2": ("host", "registered", HOST),
    "cuMemHostUnregister": ("host", "registered", HOST),
    "cuMemAllocAsync": ("pool", "device", DEVICE),
    "cuMemAllocFromPoolAsync": ("pool", "device", DEVICE),
    "cuMemFreeAsync": ("pool", "device", DEVICE),
    "cuMemCreate": ("driver", "device", HANDLE),
    "cuMemRelease": ("driver", "device", HANDLE),
    "cuMemMap": ("driver", "device", HANDLE),
    "cuMemUnmap": ("driver", "device", HANDLE),
    "cuMemRetainAllocationHandle": ("driver", "device", HANDLE),
    "cuArray3DCreate_v2": ("driver", "array", OBJECT + "array"),
    "cuMipmappedArrayCreate": ("driver", "array", OBJECT + "array"),
    "cuMipmappedArrayDestroy": ("driver", "array", OBJECT + "array"),
    "cuArrayDestroy": ("driver", "array", OBJECT + "array"),
    "cuDevicePrimaryCtxReset": ("driver", "none", NONE),
    "cuCtxDestroy_v2": ("driver", "none", NONE),
    "torch": ("pool", "device", TORCH),
    "torch.oom": ("pool", "device", TORCH),
    "cupy": ("pool", "device", OBJECT + "cupy"),
    "cupy.alloc": ("driver", "device", NONE),
    "nvtx": ("none", "none", NONE),
    "scope": ("none", "none", NONE),
    "none": ("none", "none", NONE),
}

FIELD = re.compile(r'([a-z_]+)=("(?:[^"\\]|\\.)*"|\S*)')


def number(text: str) -> int:
    return int(text, 0)


class Event:
    """One line of the twin after `part`."""

    def __init__(self, line: str, lone: int):
        words = line.split(" ", 2)
        self.time, self.kind = int(words[0]), words[1]
        fields = dict(FIELD.findall(words[2] if len(words) > 2 else ""))
        self.process = number(fields.get("process", str(lone)))
        self.thread = number(fields.get("thread", "0"))
        self.api = fields.get("api", "none")
        layer, klass, self.space = APIS[self.api]
        self.layer, self.klass = fields.get("layer", layer), fields.get("class", klass)
        self.device = number(fields.get("device", "-1"))
        self.address, self.object = number(fields.get("address", "0")), number(fields.get("object", "0"))
        self.size, self.requested = number(fields.get("size", "-1")), number(fields.get("requested", "-1"))
        self.cuctx = number(fields.get("cuctx", "0"))
        self.stack, self.scope, self.parent = (number(fields.get(k, "0")) for k in ("stack", "scope", "parent"))
        self.name, self.note = number(fields.get("name", "0")), number(fields.get("note", "0"))
        self.flags = set(fields.get("flags", "").split("|")) - {""}

    def silent(self) -> bool:
        """It stands for no memory of its own."""
        return bool(self.flags & {"captured", "echo"}) or self.api == "cupy.alloc"

    def names(self) -> int:
        return self.object if self.space and (self.space == HANDLE or self.space.startswith(OBJECT)) else self.address


class Allocation:
    """Memory that an Alloc took, for as long as somebody may give it back."""

    def __init__(self, e: Event):
        self.e = e
        self.live = True
        self.handle = e.object if e.space == HANDLE else 0
        self.refs = 1
        self.counted = "nested" not in e.flags
        self.used = False
        self.around = 0  # the scope that encloses it by inference
        self.device, self.pid = "device %d " % e.device, ""


class Mapping:
    """A place where memory from cuMemCreate can be seen: it lives on while there is one."""

    def __init__(self, process: int, at: int, size: int, of: Allocation):
        self.process, self.at, self.size, self.of, self.live = process, at, size, of, True


class Scope:
    """A measured block: on each layer what its process had at its begin, has now, and had at most."""

    def __init__(self, e: Event):
        self.e = e
        self.open = True
        self.curves: dict[str, list[int]] = {}  # layer -> begin, end, max


class Trace:
    """A text twin: definitions and events."""

    def __init__(self, text: str):
        self.pids, self.frames, self.stacks, self.names = {}, {}, {}, {}
        self.start, self.events = 0, []
        lines = text.splitlines()
        lone = [number(line.split()[1]) for line in lines if line.startswith("process ")]
        for line in lines:
            kind = line.split(" ", 1)[0]
            if kind == "meta":
                self.start = number(dict(FIELD.findall(line)).get("start_monotonic", "0"))
            elif kind == "process":
                self.pids[number(line.split()[1])] = number(dict(FIELD.findall(line))["pid"])
            elif kind == "frame":
                head, file, rest = re.match(r'frame (\d+ \S+) ("(?:[^"\\]|\\.)*") (.*)', line).groups()
                row, function = re.match(r'(\d+) ("(?:[^"\\]|\\.)*")', rest).groups()
                self.frames[number(head.split()[0])] = (head.split()[1], json.loads(file), number(row), json.loads(function))
            elif kind == "stack":
                _, node, parent, frame = line.split()
                self.stacks[number(node)] = (number(parent), number(frame))
            elif kind == "name":
                self.names[number(line.split()[1])] = json.loads(line.split(" ", 2)[2])
            elif kind[:1].isdigit() or kind[:1] == "-":
                self.events.append(Event(line, lone[0] if len(lone) == 1 else 0))

    def stack(self, node: int) -> list[str]:
        """Frames, outermost first, as file:line:function."""
        out = []
        while node:
            node, frame = self.stacks[node]
            kind, file, row, function = self.frames[frame]
            out.append(function if kind in ("thread", "label") else "%s:%s:%s" % (file, row or "None", function))
        return out[::-1]

    def line(self, node: int) -> str:
        """The innermost line; without one the innermost frame."""
        frames = self.kinds(node)
        for kind, label in reversed(frames):
            if kind in ("python", "native", "go"):
                return label
        return frames[-1][1] if frames else "[no line]"

    def kinds(self, node: int) -> list[tuple[str, str]]:
        kinds, at = [], node
        while at:
            at, frame = self.stacks[at]
            kinds.append(self.frames[frame][0])
        return list(zip(kinds[::-1], self.stack(node)))


class Oracle:
    """All answers to one trace, or to what of its allocations is wanted."""

    def __init__(self, trace: Trace, wants: Callable[[Oracle, Event], bool] = lambda oracle, e: True):
        self.trace, self.wants = trace, wants
        self.allocations: list[Allocation] = []
        self.mappings: list[Mapping] = []
        self.scopes: dict[int, Scope] = {}
        self.ended: list[Allocation] = []  # by the latest giving back
        self.unmapped: list[Mapping] = []
        self.unknown = 0
        self.missed = 0  # 1 where the latest free was of what is not known
        self.lost = 0
        self.pooled = {
            e.process for e in trace.events if e.kind in ("Alloc", "AllocFailed") and e.layer == "pool" and not e.silent()
        }
        self.peaks: dict[str, list[int]] = {}  # sum -> highest, when
        self.at_peak: dict[int, list] = {}  # device -> line, used, acquired of what was live
        self.at_end: list[Allocation] = []
        self.end: dict[int, int] = defaultdict(int)  # process -> used just before its end
        self.total = defaultdict(lambda: [0, 0])  # path of lines -> used, acquired, of every attempt
        self.history: dict[int, list] = defaultdict(list)  # device -> when, used
        self.taken = [0, 0, 0]  # bytes, allocations, largest, of what is used
        for e in trace.events:
            self.apply(e)
            self.look(e)
        self.finish()

    # What events do.

    def named(self, e: Event) -> Allocation | None:
        for a in self.allocations:
            if a.live and a.e.process == e.process and a.e.space == e.space:
                if (a.handle if e.space == HANDLE else a.e.names()) == e.names():
                    if e.space != HANDLE or a.handle:
                        return a
        return None

    def settle(self, a: Allocation) -> None:
        if a.e.space == HANDLE and not a.handle and not any(m.live and m.of is a for m in self.mappings):
            a.live = False
            self.ended.append(a)

    def apply(self, e: Event) -> None:
        do = getattr(self, "do_" + e.kind, None)
        if do:
            do(e)
        self.allocations = [a for a in self.allocations if a.live]

    def do_Alloc(self, e: Event) -> None:
        self.attempt(e)
        if e.silent():
            return
        if self.is_used(e):
            n = max(e.size, 0)
            if not (e.layer == "pool" and n == 0):
                self.taken = [self.taken[0] + n, self.taken[1] + 1, max(self.taken[2], n)]
        if e.layer == "pool" and e.size == 0:
            return
        old = self.named(e)
        if old:
            self.lost += 1
            if old.handle and any(m.live and m.of is old for m in self.mappings):
                old.handle = 0
            else:
                old.live = False
        a = Allocation(e)
        a.counted = a.counted and self.wants(self, e)
        a.around = self.around(e)
        a.used = self.is_used(e) and a.counted
        a.pid = "pid %d " % self.trace.pids.get(e.process, 0)
        self.allocations.append(a)

    def do_AllocFailed(self, e: Event) -> None:
        self.attempt(e)

    def do_Free(self, e: Event) -> None:
        if e.silent():
            return
        a = self.named(e)
        self.ended, self.missed = [], 0
        if a:
            a.live = False
            self.ended = [a]
        elif e.names():
            self.missed = 1
            self.unknown += 1

    def do_FreeFailed(self, e: Event) -> None:
        for a in self.ended:
            a.live = True
            self.allocations.append(a)
        self.unknown -= self.missed
        self.ended, self.missed = [], 0

    def do_Map(self, e: Event) -> None:
        a = self.named(e)
        if a:
            self.mappings.append(Mapping(e.process, e.address, e.size, a))

    def do_Unmap(self, e: Event) -> None:
        found = False
        for m in self.mappings:
            if m.live and m.process == e.process and m.at >= e.address and m.at + m.size <= e.address + e.size:
                m.live, found = False, True
                self.settle(m.of)
        if not found:
            self.unknown += 1

    def do_Retain(self, e: Event) -> None:
        a = self.named(e)
        if a:
            a.refs += 1
            return
        for a in reversed(self.allocations):
            if a.live and a.e.process == e.process and a.e.space == HANDLE and a.e.object == e.object:
                a.refs, a.handle = 1, e.object
                return

    def do_Release(self, e: Event) -> None:
        a = self.named(e)
        if not a:
            self.unknown += 1
            return
        a.refs -= 1
        if a.refs == 0:
            a.handle = 0
            self.settle(a)

    def do_Reset(self, e: Event) -> None:
        for a in self.allocations:
            if a.live and a.e.process == e.process and (a.e.cuctx == e.cuctx if e.cuctx else a.e.device == e.device):
                a.live = False
                for m in self.mappings:
                    m.live = m.live and m.of is not a

    def do_ProcessEnd(self, e: Event) -> None:
        for s in self.scopes.values():
            s.open = s.open and s.e.process != e.process
        for a in self.allocations:
            if a.live and a.e.process == e.process:
                self.outlive(a)
                a.live = False
        for m in self.mappings:
            m.live = m.live and m.process != e.process

    def do_ScopeBegin(self, e: Event) -> None:
        s = self.scopes[e.scope] = Scope(e)
        s.curves = {layer: [v, v, v] for layer, v in self.process_sums(e.process).items()}

    def do_ScopeReset(self, e: Event) -> None:
        s = self.scopes.get(e.scope)
        if s and s.open:
            s.curves = {layer: [v, v, v] for layer, v in self.process_sums(e.process).items()}

    def do_ScopeEnd(self, e: Event) -> None:
        if e.scope in self.scopes:
            self.scopes[e.scope].open = False

    def inside(self, name: str, e: Event) -> bool:
        """Whether a scope of that name is open on the thread of e."""
        return any(s.open and (s.e.process, s.e.thread) == (e.process, e.thread) and self.trace.names.get(s.e.name) == name
                   for s in self.scopes.values())

    def around(self, e: Event) -> int:
        """The scope that is inferred to be around e, whose thread never opened one; 0 where none is."""
        told = [s for s in self.scopes.values() if s.e.process == e.process and not self.trace.names.get(s.e.note) and "range" not in s.e.flags]
        if e.scope or e.thread in {self.trace.pids.get(e.process), *(s.e.thread for s in told)}:
            return 0
        inside = [s.e for s in told if s.open]
        return inside[-1].scope if len({s.thread for s in inside}) == 1 else 0

    def enclosed(self, name: str, e: Event) -> bool:
        """Whether e is in a scope of that name, or inferred to be."""
        scope = self.around(e)
        return self.inside(name, self.scopes[scope].e if scope else e)

    # What is added up.

    def is_used(self, e: Event) -> bool:
        return e.klass == "device" and "nested" not in e.flags and e.layer == ("pool" if e.process in self.pooled else "driver")

    def counted(self) -> list[Allocation]:
        return [a for a in self.allocations if a.live and a.counted and a.e.klass == "device" and a.e.layer in ("driver", "pool")]

    def process_sums(self, process: int) -> dict[str, int]:
        sums = {"driver": 0, "pool": 0}
        for a in self.counted():
            if a.e.process == process:
                sums[a.e.layer] += max(a.e.size, 0)
        return sums

    def attempt(self, e: Event) -> None:
        """CuPy's reading: an attempt counts, whether it failed or not."""
        if e.flags & {"captured", "echo", "nested"} or e.api == "cupy.alloc" or e.klass != "device":
            return
        n = max(e.size, 0) if e.size > 0 or e.kind != "AllocFailed" else max(e.requested, 0)
        used = n if e.layer == ("pool" if e.process in self.pooled else "driver") else 0
        acquired = n if e.layer == "driver" else 0
        if e.layer not in ("driver", "pool"):
            return
        path = self.trace.stack(e.stack)
        for i in range(len(path) + 1):
            t = self.total["\n".join(path[:i])]
            t[0] += used
            t[1] += acquired

    def look(self, e: Event) -> None:
        sums: dict[str, int] = defaultdict(int)
        layers: dict[tuple[int, str], int] = defaultdict(int)
        counted = self.counted()
        for a in counted:
            n = max(a.e.size, 0)
            layers[a.e.process, a.e.layer] += n
            if a.used:
                sums[a.device + "used"] += n
                sums[a.pid + "used"] += n
                sums["all used"] += n
            if a.e.layer == "driver":
                sums[a.device + "acquired"] += n
                sums[a.pid + "acquired"] += n
        at = e.time - self.trace.start
        for name, v in sums.items():
            if v > self.peaks.get(name, [0, 0])[0]:
                self.peaks[name] = [v, at]
                if name.startswith("device") and name.endswith("used"):
                    device = int(name.split()[1])
                    self.at_peak[device] = [(a, max(a.e.size, 0) if a.used else 0, max(a.e.size, 0) if a.e.layer == "driver" else 0)
                                            for a in counted if a.e.device == device]
        for device in {n.split()[1] for n in [*sums, *self.peaks] if n.startswith("device")}:
            self.history[int(device)].append([at, sums.get("device %s used" % device, 0)])
        for s in self.scopes.values():
            if s.open:
                for layer, c in s.curves.items():
                    c[1] = layers[s.e.process, layer]
                    c[2] = max(c[2], c[1])

    def outlive(self, a: Allocation) -> None:
        self.at_end.append(a)
        if a.used:
            self.end[a.e.process] += max(a.e.size, 0)

    def finish(self) -> None:
        for a in self.allocations:
            if a.live:
                self.outlive(a)

    # The answers.

    def flat(self, rows: list) -> dict[str, list[int]]:
        out: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        for a, used, acquired in rows:
            t = out[self.trace.line(a.e.stack)]
            t[0] += used
            t[1] += acquired
        return {k: v for k, v in out.items() if v != [0, 0]}

    def path(self, scope: int) -> str:
        names = []
        while scope and scope in self.scopes:
            e = self.scopes[scope].e
            names.append(self.trace.names.get(e.name, "") or "(no name)")
            scope = e.parent
        return " > ".join(names[::-1]) or "[no scope]"

    def scopes_of(self, rows: list) -> dict[str, int]:
        out: dict[str, int] = defaultdict(int)
        for a, used, _ in rows:
            out[self.path(a.around) + " (inferred)" if a.around else self.path(a.e.scope)] += used
        return {k: v for k, v in out.items() if v}

    def leaks(self) -> dict[str, int]:
        """Bytes just before each process's end, or at the trace's, by process, layer and class."""
        out: dict[str, int] = defaultdict(int)
        for a in self.at_end:
            if a.counted and a.e.klass != "imported":
                out["%d %s %s" % (self.trace.pids.get(a.e.process, 0), a.e.layer, a.e.klass)] += max(a.e.size, 0)
        return {k: v for k, v in out.items() if v}

    def answers(self) -> dict:
        end = [(a, max(a.e.size, 0) if a.used else 0, max(a.e.size, 0) if a.e.layer == "driver" else 0)
               for a in self.at_end if a.counted and a.e.klass == "device" and a.e.layer in ("driver", "pool")]
        scopes = {}
        for id, s in self.scopes.items():
            layer = "pool" if s.e.process in self.pooled else "driver"
            scopes[str(id)] = {"used": s.curves[layer], "acquired": s.curves["driver"]}
        return {
            "peaks": {k: v for k, v in self.peaks.items()},
            "unknown_frees": self.unknown,
            "lost_frees": self.lost,
            "live_at_end": {str(self.trace.pids[p]): v for p, v in self.end.items() if v and p in self.trace.pids},
            "scopes": scopes,
            "total": {k: v for k, v in self.total.items() if v != [0, 0]},
            "at_peak": {str(d): self.flat(rows) for d, rows in self.at_peak.items()},
            "scopes_at_peak": {str(d): self.scopes_of(rows) for d, rows in self.at_peak.items()},
            "at_end": self.flat(end),
            "leaks": self.leaks(),
            "history": {str(d): h for d, h in self.history.items() if any(v for _, v in h)},
            "taken": self.taken,
        }


# Flags of gpuanalyze, and which allocations they leave.
FILTERS: dict[str, Callable[[Oracle, Event], bool]] = {
    "--thread 1": lambda o, e: e.thread == 1,
    "--layer pool": lambda o, e: e.layer == "pool",
    "--layer driver --device 0": lambda o, e: e.layer == "driver" and e.device == 0,
    "--process 101 --device 1": lambda o, e: e.process == 1 and e.device == 1,
    "--scope step": lambda o, e: o.inside("step", e),
    "--scope step --infer scope": lambda o, e: o.enclosed("step", e),
    "--scope forward --process 102": lambda o, e: e.process == 2 and o.inside("forward", e),
}


def main() -> None:
    """Answer the command line."""
    if sys.argv[1] == "random":
        first, count = int(sys.argv[2]), int(sys.argv[3])
        for seed in range(first, first + count):
            text = Generator(seed).text("random %d" % seed, 40 + seed % 60)
            trace = Trace(text)
            answers = Oracle(trace).answers()
            answers["filtered"] = {flags: Oracle(trace, wants).answers() for flags, wants in FILTERS.items()}
            print(json.dumps({"text": text, "answers": answers}))
        return
    for path in sys.argv[2:]:
        with open(path, encoding="utf-8") as f:
            print(json.dumps({"answers": Oracle(Trace(f.read())).answers()}))


if __name__ == "__main__":
    main()
