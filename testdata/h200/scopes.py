"""GPUMemTrace in a PyTorch program, against PyTorch's own counters, against the
trace, and beside fastai's algorithm; scopes.sh runs it.

    scopes.py record        five nested and overlapping scopes at once (under gpurec run)
    scopes.py reference     PyTorch's counters: the program once for each scope, in a
                            process of its own, its one peak counter reset at the begin
    scopes.py polled        fastai's GPUMemTrace as it is specified: NVML, read by a thread
    scopes.py compare DIR   the table of what the three and gpuanalyze contexts said
    scopes.py cost GPUREC   what an alloc and free costs, with and without scopes
    scopes.py worker        one side of cost

All but compare and cost print one line of JSON.
"""

import json
import os
import random
import statistics
import subprocess
import sys
import threading
import time

MB = 1 << 20

# Each begins before one step of the program and ends before another.
SCOPES = {"outer": (0, 11), "nested": (1, 4), "overlapping": (3, 8), "brief": (2, 3), "late": (7, 10)}


def program(at):
    """Steps that take the same memory each time they run in a new process; at(i)
    is called before step i, and once more after the last."""
    import torch

    def take(n):
        return torch.empty(int(n), dtype=torch.uint8, device="cuda")

    held = {"first": take(10 * MB)}

    def short_peak():
        take(700 * MB)

    def burst():
        rng = random.Random(1)
        held["burst"] = [take(rng.randrange(1, 4 * MB)) for _ in range(200)]
        del held["burst"][::3]

    def model():
        if not hasattr(torch, "nn"):  # the stand-in of test_scopes.py
            return
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 1024)).cuda()
        optimizer = torch.optim.AdamW(net.parameters())
        for _ in range(3):
            loss = net(torch.ones(512, 1024, device="cuda")).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        held["net"] = net

    def thread():
        t = threading.Thread(target=lambda: held.update(thread=take(77 * MB)))
        t.start()
        t.join()

    def two_peaks():
        a = take(300 * MB)
        b = take(200 * MB)
        del a
        c = take(50 * MB)
        del b, c

    steps = [
        lambda: held.update(kept=take(64 * MB)),
        lambda: held.update(odd=take(33 * MB + 12345)),
        short_peak,
        burst,
        model,
        lambda: held.pop("kept"),
        thread,
        two_peaks,
        lambda: held.pop("burst"),
        lambda: held.update(last=take(100 * MB)),
        lambda: held.pop("odd"),
    ]
    for i, step in enumerate(steps):
        at(i)
        step()
    at(len(steps))


def begins_and_ends(begin, end):
    """at() of a program: end is called for what ends before a step, then begin."""

    def at(i):
        for name, (first, last) in SCOPES.items():
            if last == i:
                end(name)
        for name, (first, last) in SCOPES.items():
            if first == i:
                begin(name)

    return at


def patient(ask):
    """The answer of a recorder that may be kept from running for a while."""
    import gpurec

    for i in range(100):
        try:
            return ask()
        except gpurec.NoAnswer as e:
            why = e
            time.sleep(0.01)
    raise why


def record():
    import gpurec
    import torch

    traces, said = {}, {}

    def begin(name):
        traces[name] = gpurec.GPUMemTrace(ctx=name, silent=True)

    def end(name):
        traces[name].stop()
        m = patient(traces[name].measure)
        said[name] = dict(begin=m.begin, end=m.end, max=m.max, lost=m.lost, data_bytes=patient(traces[name].data_bytes))

    program(begins_and_ends(begin, end))
    return dict(scopes=said, torch=[torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()])


def reference():
    """A child for each scope, forked before CUDA is touched, and one that resets nothing."""
    import torch

    said = {}
    for of in [*SCOPES, None]:
        r, w = os.pipe()
        pid = os.fork()
        if pid == 0:
            found = {}

            def begin(name):
                if name == of:
                    torch.cuda.reset_peak_memory_stats()
                    found["begin"] = torch.cuda.memory_allocated()

            def end(name):
                if name == of:
                    found.update(end=torch.cuda.memory_allocated(), max=torch.cuda.max_memory_allocated())

            program(begins_and_ends(begin, end))
            if of is None:
                found = [torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()]
            os.write(w, json.dumps(found).encode())
            os._exit(0)
        os.close(w)
        said[of or "torch"] = json.loads(os.read(r, 1 << 16))
        os.close(r)
        os.waitpid(pid, 0)
    return dict(scopes=said)


class Polled:
    """fastai's GPUMemTrace: each measurement empties PyTorch's cache first, and the
    peak is what a thread reads of NVML, a millisecond apart, cache and all."""

    def __init__(self):
        import gpurec

        self.gpurec, self.on = gpurec, True
        self.begin = self.peak = gpurec.gpu_mem_get_used_no_cache()
        threading.Thread(target=self.watch, daemon=True).start()

    def watch(self):
        handle = self.gpurec.gpu_handle()
        while self.on:
            self.peak = max(self.peak, self.gpurec.gpu_mem_get_used_fast(handle))
            time.sleep(0.001)

    def stop(self):
        self.on = False
        used = self.gpurec.gpu_mem_get_used_no_cache() - self.begin
        peaked = self.peak - self.begin
        return [used, 0 if peaked < 0 else peaked - max(used, 0)]


def polled():
    traces, said = {}, {}

    def begin(name):
        traces[name] = Polled()

    def end(name):
        said[name] = traces[name].stop()

    program(begins_and_ends(begin, end))
    return dict(scopes=said)


def compare(where):
    def read(name):
        with open(os.path.join(where, name + ".json")) as f:
            return json.load(f)

    live, torch, fastai = read("record"), read("reference")["scopes"], read("polled")["scopes"]
    trace = {s["name"]: s["bytes"] for s in read("contexts")["scopes"]}
    differ = 0
    print("%-12s %5s %12s %12s %12s  %-8s %s" % ("scope", "", "begin", "end", "max", "", "bytes"))
    for name in SCOPES:
        m = live["scopes"][name]
        numbers = [m[k] for k in ("begin", "end", "max")]
        found = {"live": numbers, "trace": [trace.get(name, {}).get(k) for k in ("begin", "end", "max")], "torch": [torch[name].get(k) for k in ("begin", "end", "max")]}
        data = [m["end"] - m["begin"], m["max"] - max(m["begin"], m["end"])]
        for who, got in found.items():
            ok = got == numbers and m["lost"] == 0 and m["data_bytes"] == data
            differ += not ok
            print("%-12s %5s %12s %12s %12s  %s" % ((name, who) + tuple(got) + ("ok" if ok else "differs",)))
    ok = live["torch"] == torch["torch"]
    differ += not ok
    print("PyTorch's own counters in the recorded program, %s, as without: %s" % (live["torch"], "ok" if ok else "differs"))
    print("\n%-12s %22s %22s   (used, peaked in MB)" % ("scope", "GPUMemTrace, exact", "fastai, polled NVML"))
    for name in SCOPES:
        m = live["scopes"][name]
        b, e, p = (m[k] // MB for k in ("begin", "end", "max"))
        print("%-12s %11d %10d %11d %10d   %s" % (name, e - b, p - max(b, e), *fastai[name], "" if fastai[name] == [e - b, p - max(b, e)] else "misses it"))
    print("%d row(s) differ" % differ)
    return differ


def worker():
    """Reads a number of scopes a line, and prints the ns of an alloc and free with
    so many of them open; the middle of several short runs."""
    import gpurec
    import torch

    keep = torch.empty(MB, dtype=torch.uint8, device="cuda")
    print("ready", flush=True)
    for line in sys.stdin:
        traces = [gpurec.GPUMemTrace(ctx="cost", silent=True) for _ in range(int(line))]
        runs = []
        for _ in range(5):
            begun = time.perf_counter_ns()
            for _ in range(1000):
                torch.empty(MB, dtype=torch.uint8, device="cuda")
            runs.append((time.perf_counter_ns() - begun) / 1000)
        del traces
        print(statistics.median(runs), flush=True)
    del keep


def cost(gpurec):
    """Two processes that take turns, one bare and one recorded."""
    me = [sys.executable, os.path.abspath(__file__), "worker"]
    trace = os.environ["OUT"] + "/cost.gpurec"
    flags = os.environ.get("GPUREC_FLAGS", "").split()
    sides = {
        "bare": subprocess.Popen(me, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True),
        "recorded": subprocess.Popen([gpurec, "run", "-q", "-o", trace, *flags, "--", *me], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True),
    }
    for side in sides.values():
        side.stdout.readline()
    rows = [("bare", "bare", 0), ("recorded", "recorded", 0), ("with 1 open scope", "recorded", 1), ("with 8 open scopes", "recorded", 8)]
    times = {name: [] for name, _, _ in rows}
    for turn in range(int(os.environ.get("TURNS", "41"))):
        for name, side, scopes in rows:
            sides[side].stdin.write("%d\n" % scopes)
            sides[side].stdin.flush()
            times[name].append(float(sides[side].stdout.readline()))
    for side in sides.values():
        side.stdin.close()
        side.wait()
    print("a PyTorch alloc and free of 1 MiB, cached; medians of %d turns, A B C D A B C D" % len(times["bare"]))
    for name, _, _ in rows:
        added = sorted(t - b for t, b in zip(times[name], times["bare"]))
        n = len(added)
        print("%-20s %8.0f ns   added %6.0f ns [%.0f, %.0f]" % (name, statistics.median(times[name]), added[n // 2], added[n // 10], added[n - 1 - n // 10]))
    return 0


def main():
    what = sys.argv[1]
    if what in ("record", "reference", "polled"):
        print(json.dumps(globals()[what]()), flush=True)
        return 0
    if what == "worker":
        worker()
        return 0
    return 1 if {"compare": compare, "cost": cost}[what](sys.argv[2]) else 0


if __name__ == "__main__":
    sys.exit(main())
