#!/bin/bash
# Two ranks on two GPUs under torchrun, with NCCL: one trace of both, compared
# with what CUDA and PyTorch said. Run from the repository's root on a machine
# with two GPUs, with bin/gpurec and bin/gpuanalyze built.
#
#     OUT=/tmp/out testdata/h200/ddp.sh
#
# Leaves the trace, the moments and ddp.txt in $OUT. Exit: 0 when every row holds.
set -u
cd "$(dirname "$0")/../.."
OUT=$(realpath -m "${OUT:?a directory for the results}")
W=/tmp/gpurec-h200
case $PWD/ in "$W"/*) echo "run this from elsewhere: $W is made anew" >&2; exit 2 ;; esac
rm -rf "$W"
mkdir -p "$OUT" "$W/programs"
cp testdata/h200/ddp.py "$W/programs"
export XDG_CACHE_HOME=$W/cache
PATH=$PWD/bin:$PATH
cd "$W"
nvidia-smi --query-gpu=index,uuid,name --format=csv,noheader | tee "$OUT/ddp.txt"
launch="python3 -m torch.distributed.run --nproc-per-node 2 programs/ddp.py"
$launch "$W/bare" >bare.out 2>bare.err
bare=$?
gpurec run -o ddp.gpurec -- $launch "$W/moments" >ddp.out 2>ddp.err
status=$?
tail -n 5 bare.err ddp.err
gpuanalyze ranks --json ddp.gpurec >ranks.json 2>ranks.err
gpuanalyze events -q ddp.gpurec >ddp.txt 2>events.err
cat events.err
python3 - $bare $status <<'PYTHON' | tee -a "$OUT/ddp.txt"
import json, re, sys

failed = 0


def row(what, got, wanted):
    global failed
    ok = got == wanted
    failed += not ok
    print("%-66s %16s %16s  %s" % (what, got, wanted, "ok" if ok else "DIFFERS"))


row("exit status, recorded and bare", sys.argv[2], sys.argv[1])
row("standard output, recorded and bare", open("ddp.out").read().strip()[-16:], open("bare.out").read().strip()[-16:])

devices, processes, samples, taken, blocks, torch = {}, {}, [], [], {}, {}
field = lambda line, name: (re.search(r" %s=(\S+)" % name, line) or [None, None])[1]
process, time = None, 0
for line in open("ddp.txt"):
    word = line.split(" ", 2)
    if word[0] == "device":
        devices[word[1]] = field(line, "uuid").strip('"')
    elif word[0] == "process":
        processes[word[1]] = int(field(line, "pid"))
    elif word[0] == "sample":
        if field(line, "process") is None:
            samples.append((int(word[1]), devices[field(line, "device")], int(field(line, "free") or 0)))
    elif word[0].isdigit() and len(word) > 2:
        time, kind = int(word[0]), word[1]
        pid = processes.get(field(line, "process") or "1")
        device = devices.get(field(line, "device"))
        if field(line, "api") == "torch":
            torch.setdefault(pid, []).append((time, device, int(field(line, "allocated")), int(field(line, "reserved"))))
        elif field(line, "layer") in (None, "driver") and (field(line, "api") or "").startswith("cuMem"):
            key = (pid, field(line, "object") or field(line, "address"))
            size = int(field(line, "size") or 0)
            if kind == "Alloc" and field(line, "class") in (None, "device"):
                blocks[key] = size
                taken.append((time, pid, size, field(line, "api")))
            elif kind in ("Free", "Release") and key in blocks:
                taken.append((time, pid, -blocks.pop(key), field(line, "api")))

moments = [[json.loads(l) for l in open("moments-%d.jsonl" % r)] for r in (0, 1)]
ranks = {r["rank"]: r for r in json.load(open("ranks.json"))["ranks"] if r.get("rank", -1) >= 0}
row("ranks in the trace", sorted(ranks) and str(sorted(ranks)), "[0, 1]")
for rank, rows in enumerate(moments):
    before = 0
    for m in rows:
        what = "rank %d %s: " % (rank, m["moment"])
        free = [f for t, u, f in samples if u == m["uuid"] and t <= m["time"] + 120_000_000]
        row(what + "free, NVML's sample and cudaMemGetInfo", free[-1] if free else None, m["free"])
        mine = [x for x in torch.get(m["pid"], []) if x[0] <= m["time"]]
        if mine:
            row(what + "device of PyTorch's events", mine[-1][1], m["uuid"])
            row(what + "allocated, the trace's and memory_allocated()", mine[-1][2], m["allocated"])
            row(what + "reserved, the trace's and memory_reserved()", mine[-1][3], m["reserved"])
        acquired = sum(s for t, p, s, _ in taken if p == m["pid"] and t <= m["time"])
        print("%-66s %16d %16s" % (what + "driver layer beyond PyTorch's segments", acquired - m["reserved"], ""))
        if m["moment"] == "all-reduce":
            row(what + "NCCL's memory is at the driver layer", acquired - m["reserved"] > 0, True)
    row("rank %d: peak used, ranks and max_memory_allocated()" % rank, ranks[rank]["peak_used"]["bytes"] if rank in ranks else None, rows[-1]["max"])
print("%d row(s) differ" % failed)
sys.exit(failed > 0)
PYTHON
rc=${PIPESTATUS[0]}
gpuanalyze ranks ddp.gpurec
gpuanalyze devices ddp.gpurec | tail -n 20
gpuanalyze peak --by parts ddp.gpurec
gpuanalyze verify ddp.gpurec
cp -r ddp.gpurec moments-*.jsonl ranks.json ddp.out ddp.err "$OUT"
cp ddp.txt "$OUT/events.txt"
exit "$rc"
