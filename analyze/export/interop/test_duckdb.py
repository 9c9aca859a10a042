"""DuckDB's answers from an export are gpuanalyze's, to the byte.

Run with a Python that has duckdb:

    python test_duckdb.py [PATH OF gpuanalyze]

The traces are those of an H200 in testdata/h200, and what they say is asked
twice: the export's views in DuckDB, and gpuanalyze itself.
"""

from __future__ import annotations

import collections
import json
import os
import subprocess
import sys
import tempfile
import unittest

import duckdb

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..", "..")
GPUANALYZE = os.path.join(ROOT, "bin", "gpuanalyze")
H200 = os.path.join(ROOT, "testdata", "h200")
TRACES = ("train", "cupy", "steps", "flavours")
TEXTS = ("oom/list", "oom/fragments", "oom/retried", "oom/pool-limit", "oom/neighbour", "widths/leak")

# Two devices and two processes, one of which has a pool; a refused free, a
# device's reset, times that repeat and step back, a checkpoint after a gap.
SMALL = """
gpurec 1
meta start=2026-11-30T10:00:00.000000001Z start_monotonic=1000 end_monotonic=9000
device 0 uuid="GPU-a" name="H200" total=10000
device 1 uuid="GPU-b" name="H200" total=10000
process 1 pid=11 command="python train.py" rank=0
process 2 pid=22 command="./c" rank=1
frame 1 python "/app/main.py" 42 "<module>"
frame 2 python "/app/net.py" 7 "forward"
stack 10 0 1
stack 11 10 2
name 1 "step"
part
1100 ScopeBegin process=1 thread=5 api=nvtx scope=8 name=1
1200 Alloc process=1 thread=5 api=cuMemAlloc_v2 device=0 address=0x1000 size=512 requested=500 stack=10 scope=8
1300 Alloc process=1 thread=5 api=cupy device=0 address=0x1000 object=1 size=256 requested=200 stack=11 scope=8
1300 Alloc process=2 thread=6 api=cuMemAlloc_v2 device=1 address=0x10 size=700 requested=700
1290 Alloc process=2 thread=6 api=cuMemAlloc_v2 device=1 address=0x1000 size=100 requested=100
1400 Free process=2 thread=6 api=cuMemFree_v2 address=0x10
1410 FreeFailed process=2 thread=6 api=cuMemFree_v2 device=1 address=0x10 size=700 requested=700 status=1
1500 Free process=1 thread=5 api=cupy address=0x1000 object=1 scope=8
1550 Alloc process=2 thread=6 api=cuMemAlloc_v2 device=0 address=0x5000 size=5000 requested=5000
1600 ScopeEnd process=1 thread=5 api=nvtx scope=8
1700 AllocFailed process=2 thread=6 api=cuMemAlloc_v2 device=1 requested=99999 status=2 stack=10
part 3
1200 Live process=1 thread=5 api=cuMemAlloc_v2 device=0 address=0x1000 size=512 requested=500 stack=10
1800 Live process=2 thread=6 api=cuMemAlloc_v2 device=1 address=0x9000 size=4000
2000 CheckpointEnd process=0 size=2
2100 Free process=2 thread=6 api=cuMemFree_v2 address=0x9000
2200 ProcessEnd process=2 status=0
"""
SAMPLES = """
sample 1150 device=0 total=10000 used=600 free=9000 reserved=10
sample 1150 device=1 total=10000 used=600 free=9000 reserved=10
sample 1350 device=0 total=10000 used=900 free=8000 reserved=10
sample 1340 device=1 total=10000 used=900 free=8500 reserved=10
sample 1650 device=1 total=10000 used=900 free=7000 reserved=10
sample 1650 device=1 process=2 total=10000 used=900 free=9999 reserved=10 process_used=5
sample 1900 device=0 total=10000 used=900 free=7000 reserved=10
"""


def gpuanalyze(*args: str) -> str:
    done = subprocess.run([GPUANALYZE, *args], capture_output=True, text=True, check=False)
    if done.returncode not in (0, 3):  # 3: a part is missing on purpose
        raise AssertionError(f"gpuanalyze {' '.join(args)}: exit {done.returncode}\n{done.stderr}")
    return done.stdout


def answer(*args: str) -> dict:
    return json.loads(gpuanalyze(*args, "--json"))


class Tree(collections.Counter):
    """Bytes of every node of a tree of lines, by its path."""

    def node(self, n: dict, at: tuple[str, ...] = ()) -> "Tree":
        for key in ("used", "acquired"):
            self[at, key] += n[key]
        for c in n.get("children", ()):
            line = c.get("line") or "None"
            named = c["kind"] in ("thread", "label")
            self.node(c, (*at, c["function"] if named else f"{c.get('file', '')}:{line}:{c['function']}"))
        return self

    def stack(self, stack: str, used: int, acquired: int) -> None:
        frames = tuple(stack.split(";")) if stack else ()
        for depth in range(len(frames) + 1):
            self[frames[:depth], "used"] += used
            self[frames[:depth], "acquired"] += acquired

    def nonzero(self) -> dict:
        return {k: v for k, v in self.items() if v}


class DuckDB(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.work = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.work.cleanup)
        cls.traces: dict[str, str] = {}
        cls.connections: dict[str, duckdb.DuckDBPyConnection] = {}
        for name in TRACES:
            cls.add(name, os.path.join(H200, name + ".gpurec"))
        for name in TEXTS:
            trace = os.path.join(cls.work.name, os.path.basename(name) + ".gpurec")
            gpuanalyze("import", "text", os.path.join(H200, name + ".txt.zst"), "-o", trace)
            cls.add(name, trace)
        for name, text in (("exact", SMALL), ("sampled", SMALL + SAMPLES)):
            path = os.path.join(cls.work.name, name)
            with open(path + ".txt", "w", encoding="utf-8") as f:
                f.write(text)
            gpuanalyze("import", "text", path + ".txt", "-o", path + ".gpurec")
            cls.add(name, path + ".gpurec")

    @classmethod
    def add(cls, name: str, trace: str) -> None:
        cls.traces[name], cls.connections[name] = trace, cls.load(name, trace)

    @classmethod
    def load(cls, name: str, trace: str, *window: str) -> duckdb.DuckDBPyConnection:
        out = os.path.join(cls.work.name, os.path.basename(name) + "-duckdb")
        gpuanalyze("export", trace, "--to", "duckdb", "-o", out, *window)
        connection = duckdb.connect()
        connection.execute(f"SET file_search_path = '{out}'; SET TimeZone = 'Asia/Tokyo'")
        with open(os.path.join(out, "load.sql"), encoding="utf-8") as f:
            connection.execute(f.read())
        return connection

    def each(self):
        self.assertGreater(len(self.traces), 3)
        for name, trace in self.traces.items():
            yield trace, self.connections[name]

    def test_lines(self) -> None:
        for trace, db in self.each():
            for at, query in (
                ("total", "select stack, used, acquired from total_by_line"),
                ("end", "select stack, used, acquired from live_at_end"),
                ("1.5s", "select stack, used, acquired from live_at(1500000000)"),
                ("9.4s", "select stack, used, acquired from live_at(9400000000)"),
            ):
                want = Tree().node(answer("lines", "--at", at, trace)["trees"][0]["tree"])
                got = Tree()
                for row in db.execute(query).fetchall():
                    got.stack(*row)
                self.assertEqual(got.nonzero(), want.nonzero(), (trace, at))

    def test_peak(self) -> None:
        for trace, db in self.each():
            want, got = {}, collections.defaultdict(dict)
            for d in answer("peak", trace)["devices"]:
                for key, column in (("lines", "site"), ("own_lines", "own_site")):
                    rows = {r["name"]: (r["used"], r["acquired"], r["blocks"]) for r in d[key] if r["used"] or r["acquired"]}
                    want[d["device"], d["at_ns"], column] = rows
                self.assertEqual(
                    db.execute("select time_ns, used, acquired, blocks from peaks where device = ?", [d["device"]]).fetchall(),
                    [(d["at_ns"], d["used"], d["acquired"], d["blocks"])],
                )
            self.assertTrue(want)
            for column in ("site", "own_site"):
                for device, at, site, *sums in db.execute(
                    f"select device, time_ns, {column}, sum(used)::bigint, sum(acquired)::bigint, sum(blocks)::bigint from peak_by_line group by all"
                ).fetchall():
                    got[device, at, column][site] = tuple(sums)
            self.assertEqual(dict(got), want, trace)

    def test_peak_of_a_window(self) -> None:
        for number, (begin, end) in enumerate((("scope:step#3", "scope:step#3"), ("9.4s", "9.41s"), ("9.6s", "9.6s"))):
            trace = self.traces["train"]
            db = self.load(f"window{number}", trace, "--from", begin, "--until", end)
            want = [(d["at_ns"], d["used"], d["acquired"], d["blocks"]) for d in answer("peak", "--from", begin, "--to", end, trace)["devices"]]
            self.assertTrue(want)
            self.assertEqual(db.execute("select time_ns, used, acquired, blocks from peaks").fetchall(), want, (begin, end))

    def test_contexts(self) -> None:
        seen = 0
        for trace, db in self.each():
            for curve, used, peaked in (
                ("used", "delta_used", "delta_peaked"),
                ("acquired", "delta_acquired", "delta_acquired_peaked"),
                ("nvml", "delta_nvml", "delta_nvml_peaked"),
            ):
                want = [
                    (s["id"], s["name"], s["begin_ns"], s["end_ns"], s["bytes"]["used"], s["bytes"]["peaked"])
                    for s in answer("contexts", "--curve", curve, trace)["scopes"]
                    if s["bytes"]["known"]
                ]
                got = db.execute(
                    f"select scope, name, begin_ns, end_ns, {used}, {peaked} from delta_by_context where {used} is not null"
                ).fetchall()
                self.assertEqual(sorted(got), sorted(want), (trace, curve))
                seen += len(want)
        self.assertGreater(seen, 1000)

    def test_devices(self) -> None:
        for trace, db in self.each():
            [t] = answer("devices", trace)["traces"]
            want = [tuple(r[k] for k in ("from_ns", "to_ns", "device", "free_at_start", "free_min", "free_max")) for r in t["runs"]]
            got = db.execute("select from_ns, to_ns, device, free_at_start, free_min, free_max from device_history").fetchall()
            self.assertEqual(got, want, trace)

    def test_oom(self) -> None:
        seen = 0
        for trace, db in self.each():
            [t] = answer("oom", trace)["traces"]
            want = sorted((f["pid"], f["device"], f["reporter"], f["line"], f["count"], f["at_ns"], f["asked"]) for f in t["failures"])
            got = db.execute(
                "select pid, device, reporter, own_site, count(*), max(time_ns), arg_max(asked, time_ns) from oom"
                " where outcome = 'told' group by process, pid, device, reporter, stack, own_site"
            ).fetchall()
            self.assertEqual(sorted(got), want, trace)
            want = sorted((r["pid"], r["api"], r["count"], r["largest"], r["first_ns"]) for r in t["retried"])
            got = db.execute(
                "select pid, reporter, count(*), max(asked), min(time_ns) from oom where outcome = 'retried' group by process, pid, device, reporter, stack"
            ).fetchall()
            self.assertEqual(sorted(got), want, trace)
            seen += len(t["failures"]) + len(t["retried"])
        self.assertGreater(seen, 4)

    def test_instants_are_utc_whatever_the_session(self) -> None:
        with open(os.path.join(self.traces["train"], "trace.json"), encoding="utf-8") as f:
            start = json.load(f)["start"].rstrip("Z")
        [(text, first)] = self.connections["train"].execute(
            "select timestamp::varchar, (select count(distinct epoch_ns(e.timestamp) - e.time_ns - epoch_ns(t.timestamp)) from events e) from traces t"
        ).fetchall()
        self.assertEqual((text.replace(" ", "T").rstrip("0"), first), (start.rstrip("0"), 1))

    def test_every_column_has_a_comment_or_a_plain_name(self) -> None:
        rows = self.connections["train"].execute("select table_name, column_name, comment from duckdb_columns() where not internal").fetchall()
        commented = [r for r in rows if r[2]]
        self.assertGreater(len(commented), 100)


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        GPUANALYZE = os.path.abspath(sys.argv.pop(1))
    unittest.main()
