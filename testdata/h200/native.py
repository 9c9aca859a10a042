"""Looks at the stacks of a trace's text twin, for native.sh; each answer is a
row of its table and ends with ok or differs.

    native.py unwound EVENTS PRINTED   against what cuda/testdata/unwind.cpp printed
    native.py reaches EVENTS FUNCTION  every driver allocation's stack is whole and has the function
    native.py torch EVENTS             shares of a PyTorch run's bytes by what their stacks have
    native.py same WHAT TEXT TEXT      two reports are the same
"""

import re
import shlex
import sys

FRAME = re.compile(r'frame (\d+) (\w+) (".*)')
CUT = " left out]"  # the end of the frame that stands for outer ones, of whatever number


class Trace:
    """Frames as (kind, words, fields), stacks as lists of them, outermost first."""

    def __init__(self, path):
        self.frames, self.parents, self.allocs, self.known = {}, {}, [], {0: []}
        for line in open(path, encoding="utf-8"):
            word = line.split(" ", 1)[0]
            if word == "frame":
                number, kind, rest = FRAME.match(line).groups()
                words = shlex.split(rest)
                self.frames[int(number)] = (kind, words[0], words[2], dict(w.split("=", 1) for w in words[3:]))
            elif word == "stack":
                number, parent, frame = map(int, line.split()[1:])
                self.parents[number] = (parent, frame)
            elif " Alloc " in line and line[0].isdigit():
                self.allocs.append(dict(w.split("=", 1) for w in line.split() if "=" in w))

    def stack(self, number):
        if number not in self.known:
            parent, frame = self.parents[number]
            self.known[number] = self.stack(parent) + [self.frames[frame]]
        return self.known[number]

    def events(self, layer):
        """The allocations of a layer with their stacks."""
        for a in self.allocs:
            driver = a.get("api", "").startswith("cu") and "Async" not in a["api"]
            if (layer == "driver") == driver:
                yield a, self.stack(int(a.get("stack", 0)))


def row(what, got, wanted, ok):
    print("%-58s %14s %14s  %s" % (what, got, wanted, "ok" if ok else "differs"))
    return 0 if ok else 1


def unwound(events, printed):
    trace, recorded, failed = Trace(events), {}, 0
    for a, stack in trace.events("driver"):
        place = [f[3]["module"] + ":" + format(int(f[3]["address"], 16), "x") for f in reversed(stack) if f[0] == "native" and f[3]["module"] != "[native]"]
        recorded.setdefault(int(a["address"], 16), []).append(place)
    kinds = {}
    for line in open(printed):
        kind, address, *want = line.rstrip("\n").split("\t")
        if kind == "forks":
            continue  # of a child, which has not used the driver
        same = any(got[1:] == want for got in recorded.get(int(address), []))
        n = kinds.setdefault(kind, [0, 0])
        n[0] += same
        n[1] += 1
    for kind, (same, all_of) in kinds.items():
        failed += row("C++, %s: stacks equal to the compiler's unwinder's" % kind, same, all_of, same == all_of)
    return failed or (not kinds and row("C++ stacks", 0, "some", False))


def reaches(events, function):
    trace, all_of, whole = Trace(events), 0, 0
    for _, stack in trace.events("driver"):
        all_of += 1
        names = [f[2] for f in stack]
        whole += not any(n.endswith(CUT) for n in names) and any(n == function or n.startswith(function + "(") for n in names)
    return row("driver allocations whose stacks reach " + function, whole, all_of, whole == all_of > 0)


def torch(events):
    trace, failed = Trace(events), 0
    for layer in ("pool", "driver"):
        bytes_of, total = dict.fromkeys(("python", "native", "both", "nothing", "cut", "backward", "backward, native"), 0), 0
        for a, stack in trace.events(layer):
            size, kinds, names = int(a.get("size", 0)), {f[0] for f in stack}, [f[2] for f in stack]
            total += size
            python, native = "python" in kinds, "native" in kinds
            bytes_of["both" if python and native else "python" if python else "native" if native else "nothing"] += size
            bytes_of["cut"] += size if any(n.endswith(CUT) for n in names) else 0
            if names and names[0].startswith("[thread pt_autograd"):
                bytes_of["backward"] += size
                bytes_of["backward, native"] += size if native else 0
        share = lambda n: "%.2f %%" % (100 * n / max(total, 1))
        for what in ("python", "native", "both", "nothing", "cut"):
            print("%-58s %14s" % ("%s bytes whose stacks have %s" % (layer, what), share(bytes_of[what])))
        if layer == "pool":
            failed += row("backward's bytes with native frames", bytes_of["backward, native"], bytes_of["backward"], bytes_of["backward, native"] == bytes_of["backward"] > 0)
            failed += row("pool bytes without any frame", bytes_of["nothing"], 0, bytes_of["nothing"] == 0)
        else:
            merged = bytes_of["both"] + bytes_of["native"]
            failed += row("driver bytes with native frames", merged, total, merged == total > 0)
    return failed


def same(what, a, b):
    a, b = open(a).read(), open(b).read()
    return row(what, len(a.splitlines()), len(b.splitlines()), a == b and a != "")


if __name__ == "__main__":
    sys.exit(min(1, {"unwound": unwound, "reaches": reaches, "torch": torch, "same": same}[sys.argv[1]](*sys.argv[2:])))
