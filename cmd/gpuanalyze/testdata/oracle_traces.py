"""Random traces for oracle.py, as text twins."""

from __future__ import annotations

import random

HEAD = """gpurec 1
meta trace_id="%s" start=2026-11-30T10:00:00Z start_monotonic=1000 ending="closed"
device 0 uuid="GPU-0" name="test" total=1000000000 nvml=0
device 1 uuid="GPU-1" name="test" total=1000000000 nvml=1
process 1 pid=101 parent=1 command="a"
process 2 pid=102 parent=1 command="b"
process 3 pid=103 parent=1 command="c"
frame 1 python "/app/main.py" 5 "main"
frame 2 python "/app/main.py" 9 "main"
frame 3 python "/venv/lib/python3.12/site-packages/lib.py" 134 "forward"
frame 4 thread "" 0 "[thread loader]"
frame 5 python "/app/net.py" 7 "forward"
stack 2 0 1
stack 3 0 2
stack 4 2 3
stack 5 2 5
stack 6 5 3
stack 7 0 4
stack 8 3 5
name 1 "step"
name 2 "forward"
name 3 "load"
part
"""


class Generator:
    """Events of a few processes, threads, devices and addresses, so that everything collides with everything."""

    def __init__(self, seed: int):
        self.r = random.Random(seed)
        self.now, self.scope = 1000, 0
        self.open: list[tuple[int, int, int]] = []  # scope, process, thread
        self.mapped: dict[tuple[int, int], int] = {}
        self.plain = {p for p in (1, 2, 3) if self.r.random() < 0.4}  # without a pool
        self.gone: set[int] = set()
        self.lines: list[str] = []

    def say(self, kind: str, **fields) -> None:
        words = ["%d %s" % (self.now, kind)]
        for k, v in fields.items():
            words.append("%s=%s" % (k, hex(v) if k in ("address", "object", "cuctx") else v))
        self.lines.append(" ".join(words))

    def innermost(self, process: int, thread: int) -> int:
        for scope, p, t in reversed(self.open):
            if (p, t) == (process, thread):
                return scope
        return 0

    def step(self) -> None:
        r = self.r
        self.now += r.randrange(3)
        processes = [p for p in (1, 2, 3) if p not in self.gone]
        if not processes:
            return
        p, t = r.choice(processes), r.randrange(1, 3)
        at = r.randrange(1, 7) * 0x1000
        who = {"process": p, "thread": t}
        where = dict(who, scope=self.innermost(p, t))
        if not where["scope"]:
            del where["scope"]
        dice = r.randrange(100)
        if dice < 36:
            self.alloc(p, at, where)
        elif dice < 56:
            self.free(p, at, who)
        elif dice < 61:
            place = 0x100000 + r.randrange(8) * 0x1000
            if (p, place) not in self.mapped:
                self.mapped[p, place] = 0x1000
                self.say("Map", **who, api="cuMemMap", object=at, address=place, size=0x1000)
        elif dice < 65:
            place, size = 0x100000 + r.randrange(8) * 0x1000, r.randrange(1, 4) * 0x1000
            for key in [k for k in self.mapped if k[0] == p and place <= k[1] < place + size]:
                del self.mapped[key]
            self.say("Unmap", **who, api="cuMemUnmap", address=place, size=size)
        elif dice < 70:
            self.say("Release", **who, api="cuMemRelease", object=at)
        elif dice < 72:
            self.say("Retain", **who, api="cuMemRetainAllocationHandle", object=at)
        elif dice < 74:
            self.say("Reset", **who, api="cuDevicePrimaryCtxReset", device=r.randrange(2))
        elif dice < 75:
            self.say("ProcessEnd", process=p, status=0)
            self.gone.add(p)
            self.open = [s for s in self.open if s[1] != p]
        elif dice < 85:
            self.scope += 1
            parent = self.innermost(p, t)
            self.say("ScopeBegin", **who, api="nvtx", scope=self.scope, **({"parent": parent} if parent else {}), name=r.randrange(1, 4))
            self.open.append((self.scope, p, t))
        elif dice < 95 and self.open:  # nested and overlapping: any of the open ones ends
            i = r.randrange(len(self.open))
            scope, p, t = self.open[i]
            if r.randrange(4) == 0:
                self.say("ScopeReset", process=p, thread=t, api="nvtx", scope=scope)
            else:
                del self.open[i]
                self.say("ScopeEnd", process=p, thread=t, api="nvtx", scope=scope)
        elif dice < 97:
            self.say("AllocFailed", **where, api="cuMemAlloc_v2", device=r.randrange(2), size=0, requested=r.randrange(9000), stack=self.stack(), status=2)

    def stack(self) -> int:
        return self.r.choice([0, 2, 3, 4, 5, 6, 7, 8])

    def alloc(self, p: int, at: int, where: dict) -> None:
        apis = ["cuMemAlloc_v2", "cuMemAlloc_v2", "cuMemAllocManaged", "cuMemHostAlloc", "cuArray3DCreate_v2", "cuMemCreate", "cuMemCreate"]
        if p not in self.plain:
            apis += ["torch", "torch", "torch", "cupy", "cuMemAllocAsync"]
        api = self.r.choice(apis)
        fields = dict(where, api=api, device=self.r.randrange(2), address=at, object=at, size=self.r.randrange(5) * 512 + self.r.randrange(2), stack=self.stack())
        if not fields["stack"]:
            del fields["stack"]
        if self.r.randrange(10) == 0:
            fields["flags"] = "captured"
        elif self.r.randrange(10) == 0 and api in ("torch", "cupy", "cuMemAllocAsync"):
            fields["flags"] = "nested"
        self.say("Alloc", **fields)

    def free(self, p: int, at: int, who: dict) -> None:
        apis = ["cuMemFree_v2", "cuMemFree_v2", "cuMemFreeHost", "cuArrayDestroy"]
        if p not in self.plain:
            apis += ["torch", "torch", "torch", "cupy", "cuMemFreeAsync"]
        api = self.r.choice(apis)
        self.say("Free", **who, api=api, address=at, object=at)
        if self.r.randrange(8) == 0:
            self.say("FreeFailed", **who, api=api, address=at, object=at, status=1)

    def text(self, name: str, events: int) -> str:
        while len(self.lines) < events and len(self.gone) < 3:
            self.step()
        return HEAD % name + "\n".join(self.lines) + "\n"
