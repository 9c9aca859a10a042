#!/usr/bin/env python3
"""Compares every entry point, call by call: what entry.c printed bare and recorded,
the events of each call against cuda/testdata/entry.txt, and the recorded bytes
against the driver's own counts.

    entry.py BARE RECORDED EVENTS GOLDEN SUMMARY

BARE and RECORDED are entry.c's output without and with gpurec, EVENTS is
`gpuanalyze events --json` of the trace, GOLDEN the events on the simulated driver,
SUMMARY `gpuanalyze summary --json` of the trace: of odd frees it may know only those
that the table makes, and of look-ups without a wrapper none.
Prints one row a call: ok, differs with the reason, or skipped with the reason.
Exit: 0 when none differs, and enough were compared.
"""
import collections
import json
import re
import sys

STEP = re.compile(r"#(\d*)$")

# What gives back nothing that was taken and is not refused, as (function, case, call).
ODD_FREES = {("cuMemUnmap", "odd", "MemUnmap(va, 4 * MIB)")}


class Live:
    """A plain fold: device bytes by what holds them."""

    def __init__(self):
        self.at = {}  # (space, value) -> (size, cuctx)
        self.refs = collections.Counter()  # of VMM handles
        self.maps = {}  # address -> (handle, size)
        self.gone = {}
        self.sums = collections.Counter()  # what pools and graphs keep, by pool; "" is graphs'

    @staticmethod
    def key(e):
        api = e.get("api", "")
        if api in ("pool.reserve", "graph.reserve") or "Array" in api:
            return "object", e.get("object")
        if api in ("cuMemCreate", "cuMemRelease", "cuMemRetainAllocationHandle", "cuMemImportFromShareableHandle"):
            return "handle", e.get("object")
        return "address", e.get("address")

    def taken(self):
        return sum(size for size, _ in self.at.values())

    def end(self, key):
        had = self.at.pop(key, None)
        self.gone[key] = had  # None: a refused free of what was not there restores nothing

    def apply(self, e):
        kind, api, key = e["kind"], e.get("api", ""), self.key(e)
        if "captured" in e.get("flags", []) or "captured" in str(e.get("flags", "")):
            return
        if kind == "Alloc" and e.get("layer") == "driver" and e.get("class") in ("device", "array", "graph"):
            self.at[key] = e["size"], e.get("cuctx")
            if key[0] == "handle":
                self.refs[key] = 1
            if api.endswith(".reserve"):
                self.sums[e.get("pool", "")] += e["size"]
        elif kind == "Free":
            if api.endswith(".reserve"):
                self.sums[e.get("pool", "")] -= self.at.get(key, (0, None))[0]
            self.end(key)
        elif kind in ("Retain", "Import") and key[0] == "handle":
            self.refs[key] += 1
        elif kind == "Map" and e.get("object"):
            self.maps[e.get("pool"), e.get("address")] = ("handle", e["object"])
        elif kind == "Unmap":
            for at in [a for a in self.maps if self.ends(e, a)]:
                self.settle(self.maps.pop(at))
        elif kind == "Release" and key[0] == "handle":
            self.refs[key] -= 1
            self.settle(key)
        elif kind == "Reset":
            for k in list(self.at):
                if not e.get("cuctx") or self.at[k][1] == e["cuctx"]:
                    self.end(k)
            if not e.get("cuctx"):
                self.sums.clear()
        elif kind == "FreeFailed" and self.gone.get(key):
            self.at[key] = self.gone.pop(key)

    @staticmethod
    def ends(e, at):
        """Whether an Unmap ends the mapping at a place: one in its range, or its own place."""
        pool, address = at
        if pool != e.get("pool"):
            return False
        begin, size = int(e.get("address", "0x0"), 16), e.get("size", -1)
        return begin <= int(address or "0x0", 16) < begin + max(size, 1)

    def settle(self, key):
        if self.refs[key] <= 0 and key not in self.maps.values():
            self.end(key)


def rows(path):
    with open(path) as f:
        return [line.rstrip("\n").split("\t") for line in f if line.strip()]


def golden(path):
    """The expected statuses and events of each (function, case, call), in order."""
    want = collections.defaultdict(collections.deque)
    with open(path) as f:
        for line in f:
            line = line.rstrip("\n")
            if line.startswith("\t"):
                want[key][-1][1].append(line[1:])
                continue
            head, status = line.rsplit(" = ", 1)
            function, case, call = head.split(" ", 2)
            key = function, case.rstrip(":"), call
            want[key].append((status, []))
    return want


def short(e):
    """An event as the golden has it, without what differs between drivers."""
    if e["kind"] == "Mark":
        return "Mark " + e.get("name", "").split(" ")[0]
    if e["kind"] == "FreeFailed":  # with the allocation's own columns
        return f"FreeFailed status={e.get('status')}"
    s = f"{e['kind']} {e.get('api', '')} {e.get('layer', 'none')}/{e.get('class', 'none')}"
    if e["kind"] in ("Alloc", "AllocFailed", "Map", "Unmap", "Import") and e.get("size", -1) >= 0:
        s += f" size={e['size']}"
    if e.get("status"):
        s += f" status={e['status']}"
    if "captured" in str(e.get("flags", "")):
        s += " captured"
    return s


def same(line):
    """A line of the golden in the words of short."""
    f = line.split()
    if f[0] == "FreeFailed":
        return "FreeFailed " + next(w for w in f if w.startswith("status="))
    s = " ".join(f[:3])
    for word in f[3:]:
        if word.startswith("size=") and word != "size=-1" and f[0] in ("Alloc", "AllocFailed", "Map", "Unmap", "Import"):
            s += " " + word
        elif word.startswith("status=") or word == "captured":
            s += " " + word
    return s


def main():
    bare, recorded = rows(sys.argv[1]), rows(sys.argv[2])
    want = golden(sys.argv[4])
    steps, live, step, pid = collections.defaultdict(list), Live(), None, None
    change, first, last, builtin = collections.Counter(), {}, {}, None
    freed = {}  # of device memory that is no pool's, by the event
    with open(sys.argv[3]) as f:
        events = [json.loads(line) for line in f]
    for e in events:
        if e["kind"] == "Mark" and STEP.match(e.get("name", "")):
            pid = e["pid"]
            break
    for e in events:
        if e.get("pid") != pid:
            continue
        m = STEP.match(e.get("name", "")) if e["kind"] == "Mark" else None
        if m:
            if step:
                last[step] = dict(live.sums)
            step = m.group(1)
            first[step] = dict(live.sums)
            continue
        if e.get("api") == "cuMemAllocAsync" and e["kind"] == "Alloc":
            builtin = e.get("pool") or builtin
        before = live.taken()
        had = live.at.get(live.key(e), (0, None))[0]
        live.apply(e)
        if e["kind"] == "Free" and live.key(e)[0] == "address":
            freed[id(e)] = had
        if step and e["kind"] not in ("FreeDone", "DeviceInfo", "ThreadBegin", "Unhooked"):
            steps[step].append(e)
            change[step] += live.taken() - before
    differs = compared = odd = 0
    behind = 0  # bytes of cuMemAlloc's that cuMemFreeAsync gave back: the driver's books follow at a synchronisation
    print(f"{'':8}{'taken':>12}{'recorded':>12}{'reserved':>12}{'recorded':>12}{'graphs':>12}{'recorded':>12}{'own pool':>12}{'recorded':>12}  call")
    if len(bare) != len(recorded):
        print(f"differs: {len(bare)} rows without gpurec, {len(recorded)} with it")
        differs += 1
    for b, r in zip(bare, recorded):
        number, function, case, call, status, taken, reserved, graph, own_before, own_after = r
        if status.startswith("skipped"):
            print(f"skipped {'':96}  {function} {case}: {status[9:]}")
            continue
        compared += 1
        why = []
        odd += status == "0" and (function, case, call) in ODD_FREES
        if status.startswith("differs"):  # what others need has failed, and they are left out
            differs += 1
            print(f"differs {'':96}  {function} {case}: {call}: {status[9:]}")
            continue
        if b[1:5] != r[1:5]:
            why.append(f"status {status}, {b[4]} without gpurec")
        got = [short(e) for e in steps[number]]
        mine = [s for s in got if ".reserve" not in s]
        queue = want[function, case, call]
        expected_status, expected = queue.popleft() if queue else (None, None)
        if expected is None:
            why.append("the golden lacks it")
        elif expected_status == status or status == "0":
            e = [same(x) for x in expected if ".reserve" not in x]
            if e != mine:
                why.append(f"events {mine}, want {e}")
        elif any(s.split()[0] == "Alloc" for s in mine):
            why.append(f"it failed with {status}, and is recorded as {mine}")
        own = [sum(n for p, n in at.get(number, {}).items() if p not in ("", builtin)) for at in (first, last)]
        ours = change[number], last.get(number, {}).get(builtin, 0), last.get(number, {}).get("", 0)
        if taken != "-":
            # A pool of the program's own is asked at its next alloc, trim or end: till then what it gave back is behind.
            late = [n - int(theirs) for n, theirs in zip(own, (own_before, own_after))]
            lag = 0
            given = sum(freed.get(id(e), 0) for e in steps[number]) if call.startswith("MemFreeAsync") else 0
            if int(taken) == ours[0] + given:
                lag = given
            elif "Synchronize" in call:
                lag = -behind
            behind += lag
            for name, theirs, n in (("taken", taken, ours[0] + lag - (late[1] - late[0])), ("reserved", reserved, ours[1]), ("graph", graph, ours[2])):
                if int(theirs) != n:
                    why.append(f"{name} {theirs}, recorded {n}")
            if late[1] < 0 or late[1] > 0 and status == "0" and call.startswith(("MemAllocFromPool", "MemPoolTrim", "MemPoolDestroy")):
                why.append(f"the program's pool keeps {own_after}, recorded {own[1]}")
        differs += bool(why)
        print(f"{'differs' if why else 'ok':8}{taken:>12}{ours[0]:>12}{reserved:>12}{ours[1]:>12}{graph:>12}{ours[2]:>12}{own_after:>12}{own[1]:>12}  {function} {case}: {call} = {status}" + "".join(f"; {w}" for w in why))
    with open(sys.argv[5]) as f:
        summary = json.load(f)["traces"][0]
    for name, want_n in (("unknown_frees", odd), ("lost_frees", 0)):
        if summary[name] != want_n:
            differs += 1
            print(f"differs: the trace has {summary[name]} {name}, the table makes {want_n}")
    hookless = sorted({e.get("name", "") for e in events if e["kind"] == "Unhooked"})
    if hookless:
        differs += 1
        print(f"differs: looked up, and without a wrapper: {' '.join(hookless)}")
    print(f"{compared} calls compared, {differs} differ")
    return differs > 0 or compared < 50


if __name__ == "__main__":
    sys.exit(main())
