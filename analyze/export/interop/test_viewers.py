"""What viewers read of an export is what gpuanalyze says, to the byte.

Run with a Python that has perfetto and jsonschema:

    python test_viewers.py [PATH OF gpuanalyze]

Perfetto's file is decoded with Perfetto's own schema, as its Python package has
it, and read as its trace processor does: packets sorted by time, an end ends the
innermost slice of its track. (The trace processor itself is a binary that is
fetched at run time.) Speedscope's file is checked against speedscope's own
schema, of its npm package, where there is npm and it can be fetched.
"""

from __future__ import annotations

import collections
import functools
import importlib.util
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

import jsonschema
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as schema

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..", "..")
GPUANALYZE = os.path.join(ROOT, "bin", "gpuanalyze")
H200 = os.path.join(ROOT, "testdata", "h200")
TRACES = ("train", "cupy", "steps", "flavours")
TEXTS = ("oom/list", "oom/retried", "oom/neighbour", "widths/leak")

# Two domains of NVTX and a range overlap on one thread; two processes share a
# device, another has none; a time steps back.
OVERLAP = """
gpurec 1
meta start=2026-11-30T10:00:00.000000001Z start_monotonic=1000 end_monotonic=9000
device 0 uuid="GPU-a" name="H200" total=10000
device 1 uuid="GPU-b" name="H200" total=10000
process 1 pid=11 command="python train.py" rank=0
process 2 pid=22 command="./c" rank=1
frame 1 python "/app/main.py" 42 "<module>"
stack 10 0 1
name 1 "outer"
name 2 "inner"
name 3 "domain"
name 4 "range"
name 5 "mark <b>"
part
1100 ScopeBegin process=1 thread=5 api=nvtx scope=1 name=1
1150 ScopeBegin process=1 thread=5 api=nvtx scope=2 parent=1 name=2 note=3
1200 Alloc process=1 thread=5 api=cuMemAlloc_v2 device=0 address=0x1000 size=512 requested=500 stack=10 scope=2
1250 ScopeBegin process=1 thread=5 api=nvtx scope=3 parent=2 name=4 flags=range object=77
1300 ScopeEnd process=1 thread=5 api=nvtx scope=1
1300 Alloc process=2 thread=6 api=cuMemAlloc_v2 device=0 address=0x10 size=700 requested=700
1290 Alloc process=2 thread=6 api=cuMemAlloc_v2 device=1 address=0x1000 size=100 requested=100
1290 Free process=2 thread=6 api=cuMemFree_v2 address=0x10
1350 Mark process=1 thread=5 api=nvtx name=5
1400 ScopeBegin process=1 thread=5 api=nvtx scope=4 parent=3 name=1
1450 ScopeEnd process=1 thread=5 api=nvtx scope=2
1500 ScopeEnd process=1 thread=5 api=nvtx scope=4
1700 AllocFailed process=2 thread=6 api=cuMemAlloc_v2 device=1 requested=99999 status=2 stack=10
1800 ScopeEnd process=1 thread=5 api=nvtx scope=3
1900 ScopeBegin process=1 thread=5 api=nvtx scope=5 name=1
2000 ScopeBegin process=1 thread=5 api=scope scope=6 name=4
2050 ScopeBegin process=1 thread=5 api=scope scope=7 name=2
2100 ScopeEnd process=1 thread=5 api=scope scope=6
2150 ScopeEnd process=1 thread=5 api=scope scope=7
2200 ProcessEnd process=2 status=0
"""


def gpuanalyze(*args: str) -> str:
    done = subprocess.run([GPUANALYZE, *args], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise AssertionError(f"gpuanalyze {' '.join(args)}: exit {done.returncode}\n{done.stderr}")
    return done.stdout


def answer(*args: str) -> dict:
    return json.loads(gpuanalyze(*args, "--json"))


class Timeline:
    """A Perfetto file, read as the trace processor reads it."""

    def __init__(self, path: str) -> None:
        trace = schema.Trace()
        with open(path, "rb") as f:
            trace.ParseFromString(f.read())
        self.packets = len(trace.packet)
        self.tracks: dict[int, schema.TrackDescriptor] = {}
        for p in trace.packet:
            if p.HasField("track_descriptor"):
                self.tracks[p.track_descriptor.uuid] = p.track_descriptor
        assert trace.packet[0].clock_snapshot.clocks[0].timestamp == trace.packet[0].clock_snapshot.clocks[1].timestamp
        assert trace.packet[0].sequence_flags == 1 and all(p.trusted_packet_sequence_id for p in trace.packet)
        self.start = trace.packet[0].timestamp
        self.slices: list[tuple[str, int, int]] = []
        self.counters: dict[str, list[tuple[int, int]]] = collections.defaultdict(list)
        self.instants: list[tuple[str, str, int, dict]] = []
        self.unended = 0
        stacks = collections.defaultdict(list)
        event = schema.TrackEvent
        for p in sorted((p for p in trace.packet if p.HasField("track_event")), key=lambda p: p.timestamp):
            e, at = p.track_event, p.timestamp - self.start
            assert e.track_uuid in self.tracks, "an event of a track that nobody described"
            if e.type == event.TYPE_COUNTER:
                self.counters[self.name(e.track_uuid)].append((at, e.counter_value))
            elif e.type == event.TYPE_SLICE_BEGIN:
                stacks[e.track_uuid].append((e.name, at))
            elif e.type == event.TYPE_SLICE_END:
                name, begin = stacks[e.track_uuid].pop()
                self.slices.append((name, begin, at))
            elif e.type == event.TYPE_INSTANT:
                notes = {n.name: n.string_value or n.int_value for n in e.debug_annotations}
                self.instants.append((e.categories[0], e.name, at, notes))
        self.unended = sum(map(len, stacks.values()))

    def name(self, uuid: int) -> str:
        """The path of a track: 'pid 11/device 0 used'."""
        t = self.tracks[uuid]
        own = t.name
        if t.HasField("process"):
            own = f"pid {t.process.pid}"
        elif t.HasField("thread"):
            own = f"thread {t.thread.tid}"
        return (self.name(t.parent_uuid) + "/" if t.parent_uuid else "") + own

    def counter(self, pattern: str) -> list[int]:
        """The values of all counters of that name."""
        return [v for name, values in self.counters.items() if re.fullmatch(pattern, name) for _, v in values]


class Traces(unittest.TestCase):
    """Recordings of an H200, and a small one."""

    @classmethod
    def setUpClass(cls) -> None:
        cls.work = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.work.cleanup)
        cls.traces = {name: os.path.join(H200, name + ".gpurec") for name in TRACES}
        for name in TEXTS:
            cls.traces[name] = os.path.join(cls.work.name, os.path.basename(name) + ".gpurec")
            gpuanalyze("import", "text", os.path.join(H200, name + ".txt.zst"), "-o", cls.traces[name])
        text = os.path.join(cls.work.name, "overlap.txt")
        with open(text, "w", encoding="utf-8") as f:
            f.write(OVERLAP)
        cls.traces["overlap"] = os.path.join(cls.work.name, "overlap.gpurec")
        gpuanalyze("import", "text", text, "-o", cls.traces["overlap"])


class Perfetto(Traces):
    @classmethod
    @functools.cache
    def timeline(cls, *names: str) -> Timeline:
        out = os.path.join(cls.work.name, "-".join(map(os.path.basename, names)) + ".pftrace")
        gpuanalyze("export", *(cls.traces[n] for n in names), "-o", out)
        return Timeline(out)

    def test_peaks(self) -> None:
        for name, trace in self.traces.items():
            with self.subTest(name):
                t = self.timeline(name)
                peak = answer("peak", trace)
                self.assertTrue(peak["processes"])
                for p in peak["processes"]:
                    values = t.counter(f"pid {p['pid']}/device {p['device']} used")
                    self.assertEqual(max(values), p["used"])
                for d in peak["devices"]:
                    whose = rf"device {d['device']} .*" if len(peak["processes"]) > 1 else r"pid \d+"
                    self.assertEqual(max(t.counter(rf"{whose}/device {d['device']} used"), default=0), d["used"])

    def test_what_is_live_at_the_end(self) -> None:
        for name, trace in self.traces.items():
            with self.subTest(name):
                t = self.timeline(name)
                last = sum(values[-1][1] for n, values in t.counters.items() if re.fullmatch(r"pid \d+/device \d+ (used)", n))
                moment = answer("lines", "--at", "99999h", trace)["trees"][0]
                self.assertEqual(last, moment["used"])

    def test_samples(self) -> None:
        seen = 0
        for name, trace in self.traces.items():
            t = self.timeline(name)
            for d in answer("devices", trace)["traces"][0]["devices"]:
                if d["samples"]:
                    got = t.counter(rf"device {d['device']} .*/device {d['device']} NVML free")
                    self.assertEqual((len(got), min(got), max(got)), (d["samples"], d["free"]["min"], d["free"]["max"]), name)
                    seen += 1
        self.assertGreater(seen, 5)

    def test_scopes(self) -> None:
        for name, trace in self.traces.items():
            if name == "overlap":
                continue
            with self.subTest(name):
                want = sorted((s["name"], max(s["begin_ns"], 0), s["end_ns"]) for s in answer("contexts", trace)["scopes"])
                self.assertEqual(sorted(self.timeline(name).slices), want)
                self.assertEqual(self.timeline(name).unended, 0)

    def test_scopes_that_overlap(self) -> None:
        t = self.timeline("overlap")
        self.assertEqual(t.unended, 0)
        self.assertEqual(
            sorted(t.slices),
            [  # what outlives the scope around it is drawn in two pieces, and what is in none whole
                ("inner", 150, 300),
                ("inner", 300, 450),
                ("inner", 1050, 1150),
                ("outer", 100, 300),
                ("outer", 400, 450),
                ("outer", 450, 500),
                ("outer", 900, 8000),
                ("range", 250, 300),
                ("range", 300, 450),
                ("range", 450, 800),
                ("range", 1000, 1100),
            ],
        )

    def test_instants(self) -> None:
        seen = 0
        for name, trace in self.traces.items():
            with self.subTest(name):
                got = collections.Counter(n.split(":")[0] for category, n, _, _ in self.timeline(name).instants if category == "oom")
                [t] = answer("oom", trace)["traces"]
                self.assertEqual(got["out of memory"], sum(f["count"] for f in t["failures"]))
                self.assertEqual(got["out of memory, retried"], sum(r["count"] for r in t["retried"]))
                at = {(at, notes["asked"], notes["line"]) for c, n, at, notes in self.timeline(name).instants if c == "oom"}
                for f in t["failures"]:
                    self.assertIn((f["at_ns"], f["asked"], f["line"]), at)
                seen += sum(got.values())
        self.assertGreater(seen, 4)
        self.assertIn(("mark", "mark <b>", 350, {}), self.timeline("overlap").instants)

    def test_a_time_that_steps_back(self) -> None:
        t = self.timeline("overlap")
        self.assertEqual(t.counters["pid 22/device 0 used"], [(300, 700), (300, 0)])
        self.assertEqual([v for _, v in t.counters["device 0 H200 GPU-a/device 0 used"]], [512, 1212, 512])

    def test_two_traces(self) -> None:
        """Beside each other by the wall clock; a pid that both have is two processes."""
        t = self.timeline("train", "overlap")
        one, other = self.timeline("train"), self.timeline("overlap")
        self.assertEqual(len(t.slices), len(one.slices) + len(other.slices))
        self.assertEqual(sum(map(len, t.counters.values())), sum(map(len, one.counters.values())) + sum(map(len, other.counters.values())))
        self.assertEqual(len({d.process.pid for d in t.tracks.values() if d.HasField("process")}), 3)


class Speedscope(unittest.TestCase):
    def test_schema(self) -> None:
        npm = shutil.which("npm")
        if not npm:
            self.skipTest("there is no npm here to fetch speedscope's schema with")
        with tempfile.TemporaryDirectory() as work:
            done = subprocess.run([npm, "pack", "--silent", "speedscope@1.25.0"], cwd=work, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                self.skipTest(f"npm cannot fetch speedscope: {done.stderr.strip()[-200:]}")
            with tarfile.open(os.path.join(work, done.stdout.split()[-1])) as package:
                rules = json.load(package.extractfile("package/dist/release/file-format-schema.json"))
        for name in TRACES:
            trace = os.path.join(H200, name + ".gpurec")
            file = json.loads(gpuanalyze("export", trace, "--to", "speedscope", "-o", "-"))
            jsonschema.validate(file, rules)
            named = {p["name"].split(" of ")[0]: p for p in file["profiles"]}
            [peak] = answer("peak", trace)["devices"]
            self.assertEqual((sum(named["peak_space"]["weights"]), named["peak_space"]["endValue"]), (peak["used"], peak["used"]))
            self.assertEqual(sum(named["peak_objects"]["weights"]), peak["blocks"])


class Torch(Traces):
    """A snapshot, added up by hand and read by torch's own _memory_viz where that is there."""

    one_process = ("train", "cupy", "steps", "flavours", "oom/list", "oom/retried", "widths/leak")

    @classmethod
    @functools.cache
    def snapshot(cls, name: str) -> tuple[str, dict]:
        out = os.path.join(cls.work.name, os.path.basename(name) + ".pickle")
        gpuanalyze("export", cls.traces[name], "-o", out)
        with open(out, "rb") as f:
            return out, pickle.load(f)

    def test_the_curve(self) -> None:
        for name in self.one_process:
            with self.subTest(name):
                _, data = self.snapshot(name)
                [device] = answer("peak", self.traces[name])["devices"]
                live, now, most, reserved = {}, 0, 0, 0
                for e in data["device_traces"][device["device"]]:
                    if e["action"] == "alloc":
                        self.assertNotIn(e["addr"], live)
                        live[e["addr"]] = e["size"]
                        now += e["size"]
                    elif e["action"] == "free_completed":
                        self.assertEqual(live.pop(e["addr"]), e["size"])
                        now -= e["size"]
                    elif e["action"] in ("segment_alloc", "segment_map"):
                        reserved += e["size"]
                    elif e["action"] in ("segment_free", "segment_unmap"):
                        reserved -= e["size"]
                    most = max(most, now)
                self.assertEqual(most, device["used"])
                active = [b for s in data["segments"] for b in s["blocks"] if b["state"] == "active_allocated"]
                self.assertEqual(sorted(live.items()), sorted((b["address"], b["size"]) for b in active))
                self.assertEqual(reserved, sum(s["total_size"] for s in data["segments"]))
                self.assertEqual(now, answer("lines", "--at", "end", self.traces[name])["trees"][0]["used"])

    def test_segments(self) -> None:
        seen = 0
        for name in self.one_process:
            pools = answer("fragmentation", "--at", "end", self.traces[name])["pools"]
            if not pools:
                continue
            [pool] = pools
            _, data = self.snapshot(name)
            self.assertEqual(sum(s["total_size"] for s in data["segments"]), pool["segment_bytes"] + pool["outside"], name)
            for s in data["segments"]:
                self.assertEqual(sum(b["size"] for b in s["blocks"]), s["total_size"])
                self.assertEqual(sum(b["size"] for b in s["blocks"] if b["state"] != "inactive"), s["allocated_size"])
            seen += len(data["segments"])
        self.assertGreater(seen, 100)

    def test_stacks_and_failures(self) -> None:
        _, data = self.snapshot("train")
        first = data["device_traces"][0][1]
        self.assertEqual((first["action"], first["size"]), ("alloc", 16777216))
        self.assertTrue(first["frames"][-1]["filename"].endswith("train.py"), "the outermost is last")
        for name in ("oom/list", "oom/retried"):
            _, data = self.snapshot(name)
            ooms = [e for d in data["device_traces"] for e in d if e["action"] == "oom"]
            [t] = answer("oom", self.traces[name])["traces"]
            self.assertEqual(len(ooms), sum(f["count"] for f in t["failures"]))
            self.assertEqual([e["size"] for e in ooms][-1:], [f["asked"] for f in t["failures"]][:1])

    def test_two_processes(self) -> None:
        done = subprocess.run(
            [GPUANALYZE, "export", self.traces["overlap"], "-o", os.path.join(self.work.name, "x.pickle")], capture_output=True, text=True, check=False
        )
        self.assertEqual(done.returncode, 1)
        self.assertIn("a snapshot is of one process, and these took memory: pids 11 and 22; --process says which", done.stderr)
        gpuanalyze("export", self.traces["overlap"], "--process", "22", "-o", os.path.join(self.work.name, "22.pickle"))

    def test_torch_reads_it(self) -> None:
        viz = os.environ.get("TORCH_MEMORY_VIZ") or next((p for d in sys.path if os.path.exists(p := os.path.join(d, "torch", "cuda", "_memory_viz.py"))), None)
        if not viz:
            self.skipTest("torch is not installed, and too large to fetch; TORCH_MEMORY_VIZ=.../torch/cuda/_memory_viz.py says where it is")
        spec = importlib.util.spec_from_file_location("_memory_viz", viz)
        memory_viz = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(memory_viz)
        for name in self.one_process:
            with self.subTest(name):
                _, data = self.snapshot(name)
                reserved = sum(s["total_size"] for s in data["segments"])
                self.assertIn(f"total_reserved: {memory_viz.Bytes(reserved)}", memory_viz.segsum(data))
                self.assertIn("entries", memory_viz.trace(data))
                folded = memory_viz.memory(data, format_flamegraph=lambda text: text)
                self.assertEqual(sum(int(line.rsplit(" ", 1)[1]) for line in folded.splitlines()), reserved)
                for plot in (memory_viz.trace_plot, memory_viz.segment_plot):
                    self.assertIn("snapshot.pickle", plot(data))


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        GPUANALYZE = os.path.abspath(sys.argv.pop(1))
    unittest.main()
