"""gpuanalyze export --to torch, held against torch.cuda._memory_viz.

    gpurec run -o fresh.gpurec -- python3 exports.py program own.pickle
    python3 exports.py compare GPUANALYZE train.gpurec [fresh.gpurec own.pickle]

program trains a little with PyTorch's own memory history on from the first block,
and writes PyTorch's own snapshot last of all. compare reads exports with the
functions of torch's viewer, compares their sums with what gpuanalyze says, and
the export of the fresh recording with PyTorch's own snapshot of the same run, entry
by entry. It prints a table; exit 1 where a row differs.
"""

import collections
import contextlib
import io
import json
import os
import pickle
import subprocess
import sys

# What PyTorch's own entries say and nobody recorded; the viewer does without.
NOT_RECORDED = {"compile_context", "user_metadata", "category"}


def program(own):
    import torch
    from torch import nn
    from torch.cuda import nvtx

    torch.cuda.memory._record_memory_history(stacks="python", max_entries=1 << 20)
    model = nn.Sequential(*[m for _ in range(6) for m in (nn.Linear(1024, 1024), nn.GELU())]).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    kept = []
    for step in range(20):
        with nvtx.range("step"):
            loss = model(torch.randn(256 + 64 * (step % 3), 1024, device="cuda")).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if step % 5 == 0:
                kept.append(torch.empty(3_000_001 + step, dtype=torch.uint8, device="cuda"))
        if step == 10:
            torch.cuda.empty_cache()
    with contextlib.suppress(torch.cuda.OutOfMemoryError):
        torch.empty(1 << 50, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    with open(own, "wb") as f:
        pickle.dump(torch.cuda.memory._snapshot(), f)
    os._exit(0)  # nothing is given back after it


failed = 0


def row(what, got, wanted):
    global failed
    ok = got == wanted
    failed += not ok
    short = lambda v: str(v) if len(str(v)) <= 24 else str(v)[:21] + "..."
    print("%-74s %24s %24s  %s" % (what, short(got), short(wanted), "ok" if ok else "differs"), flush=True)


def answer(tool, *args):
    return json.loads(subprocess.check_output([tool, *args, "--json", "-q"]))


def export(tool, trace, out, *args):
    with contextlib.suppress(FileNotFoundError):
        os.remove(out)
    subprocess.check_call([tool, "export", trace, "-q", "-o", out, *args])
    with open(out, "rb") as f:
        return pickle.load(f)


def bytes_by_action(data):
    sums = collections.Counter()
    for entries in data["device_traces"]:
        for e in entries:
            sums[e["action"]] += e["size"]
    return sums


def read(viz, tool, trace):
    """One trace's export, through every function of the viewer."""
    name = os.path.splitext(os.path.basename(trace))[0]
    pickled = name + ".pickle"
    data = export(tool, trace, pickled)
    [device] = answer(tool, "peak", trace)["devices"]
    live, now, most = {}, 0, 0
    for e in data["device_traces"][device["device"]]:
        if e["action"] == "alloc":
            live[e["addr"]] = e["size"]
            now += e["size"]
        elif e["action"] == "free_completed":
            now -= live.pop(e["addr"])
        most = max(most, now)
    row(name + ": the most that the entries add up to, and peak", most, device["used"])
    row(name + ": what they leave, and lines --at end", now, answer(tool, "lines", "--at", "end", trace)["trees"][0]["used"])
    [pool] = answer(tool, "fragmentation", "--at", "end", trace)["pools"]
    reserved = sum(s["total_size"] for s in data["segments"])
    row(name + ": segments, and fragmentation --at end", reserved, pool["segment_bytes"] + pool["outside"])
    plain = lambda text: text
    folded = lambda text: sum(int(line.rsplit(" ", 1)[1]) for line in text.splitlines())
    row(name + ": segsum says so too", "total_reserved: %s\n" % viz.Bytes(reserved) in viz.segsum(data), True)
    row(name + ": memory adds up to them", folded(viz.memory(data, format_flamegraph=plain)), reserved)
    row(name + ": segments adds up to them", folded(viz.segments(data, format_flamegraph=plain)), reserved)
    row(name + ": trace has a line for each entry at least", viz.trace(data).count("\n") >= sum(map(len, data["device_traces"])), True)
    half = export(tool, trace, name + "-half.pickle", "--until", "%.9fs" % (answer(tool, "summary", trace)["traces"][0]["last_ns"] / 2e9))
    key = lambda d: {(s["address"], s["total_size"]) for s in d["segments"]}
    with contextlib.redirect_stdout(io.StringIO()):
        changed = viz.compare(half["segments"], data["segments"], format_flamegraph=plain)
    row(name + ": compare with the first half: bytes of segments that came and went", folded(changed), sum(size for _, size in key(half) ^ key(data)))
    for plot, flags in (("trace_plot", []), ("trace_plot", ["-s"]), ("trace_plot", ["-f"]), ("segment_plot", [])):
        page = "%s-%s%s.html" % (name, plot, "".join(flags))
        done = subprocess.run([sys.executable, viz.__file__, plot, *flags, pickled, "-o", page], capture_output=True, text=True, check=False)
        row("%s: %s %s makes a page" % (name, plot, " ".join(flags)), (done.returncode, done.returncode == 0 and os.path.getsize(page) > 1000), (0, True))
        print(done.stderr[-400:], end="")
    return data


def shape(data):
    """The keys of everything in a snapshot, by where it stands."""
    keys = collections.defaultdict(set)
    keys["snapshot"] |= set(data)
    for s in data["segments"]:
        keys["segment"] |= set(s)
        for b in s["blocks"]:
            keys["block"] |= set(b)
            keys["frame"] |= {k for f in b.get("frames", ()) for k in f}
    for entries in data["device_traces"]:
        for e in entries:
            keys["entry of " + e["action"]] |= set(e)
            keys["frame"] |= {k for f in e.get("frames", ()) for k in f}
    return keys


def against_own(ours, own):
    theirs, mine = shape(own), shape(ours)
    theirs.pop("entry of snapshot", None)
    for where in sorted(theirs):
        lacks = theirs[where] - mine[where] - NOT_RECORDED
        row("%s: keys that PyTorch's has and ours lacks" % where, sorted(lacks), [])
    actions = lambda d: [(e["action"], e.get("addr", 0), e["size"]) for entries in d["device_traces"] for e in entries if e["action"] != "snapshot"]
    a, b = actions(ours), actions(own)
    for action in sorted({x[0] for x in a + b}):
        pick = lambda l: [x[1:] for x in l if x[0] == action]
        row("entries of %s, their number" % action, len(pick(a)), len(pick(b)))
        if action in ("alloc", "free_completed", "free_requested"):
            # PyTorch's own entries say what was asked for. What it tells a profiler, and so ours, is the block that was
            # given: rounded, and the rest of it where the rest was too small to split off.
            row("entries of %s, at the addresses of PyTorch's, in order" % action, [x[0] for x in pick(a)] == [x[0] for x in pick(b)], True)
            row("entries of %s, each block as large as was asked for" % action, all(x[1] >= y[1] for x, y in zip(pick(a), pick(b))), True)
            continue
        row("entries of %s, their bytes" % action, sum(x[1] for x in pick(a)), sum(x[1] for x in pick(b)))
        row("entries of %s, each one's address and size, in order" % action, pick(a) == pick(b), True)
    blocks = lambda d: {(b["address"], b["size"]) for s in d["segments"] for b in s["blocks"] if b["state"] == "active_allocated"}
    row("live blocks at the end, each one's address and size", blocks(ours) == blocks(own), True)
    segments = lambda d: {(s["address"], s["total_size"], s["allocated_size"], s["segment_type"]) for s in d["segments"]}
    row("segments at the end: address, size, allocated, type", segments(ours) == segments(own), True)
    line = lambda e: next(((f["filename"].rsplit("/", 1)[-1], f["line"]) for f in e["frames"] if f["filename"].endswith("exports.py")), None)
    lines = lambda d: [line(e) for entries in d["device_traces"] for e in entries if e["action"] == "alloc"]
    known = [(x, y) for x, y in zip(lines(ours), lines(own)) if y]
    row("allocs with a line of the program in PyTorch's stack, and the same in ours", (bool(known), sum(x == y for x, y in known)), (True, len(known)))


def compare(tool, train, fresh=None, own=None):
    from torch.cuda import _memory_viz as viz

    print("%-74s %24s %24s" % ("", "export", "wanted"))
    read(viz, tool, train)
    if fresh:
        ours = read(viz, tool, fresh)
        with open(own, "rb") as f:
            against_own(ours, pickle.load(f))
    print("%d rows differ" % failed)
    return 1 if failed else 0


if __name__ == "__main__":
    if sys.argv[1] == "program":
        program(sys.argv[2])
    sys.exit(compare(*sys.argv[2:]))
