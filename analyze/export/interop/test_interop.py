"""Other tools read traces: closed parts as they lie, and exports.

Run with a Python that has pandas, pyarrow, polars and duckdb:

    python test_interop.py [PATH OF gpuanalyze]

A text twin with known sums is imported by gpuanalyze, so the writer is the
recorder's own. Every table is opened by every tool; each must find the rows,
sums and 64-bit addresses that were written here.

DuckDB's own reader of Arrow files is an extension that is fetched at run time;
it reads the files here through pyarrow, which maps them.
"""

from __future__ import annotations

import csv
import json
import os
import random
import subprocess
import sys
import tempfile
import unittest

import duckdb
import pandas
import polars
import pyarrow
import pyarrow.csv
import pyarrow.dataset
import pyarrow.ipc
import pyarrow.json
import pyarrow.parquet

HERE = os.path.dirname(os.path.abspath(__file__))
GPUANALYZE = os.path.join(HERE, "..", "..", "..", "bin", "gpuanalyze")
START = 1796032800_000_000_001  # 2026-11-30T10:00:00.000000001Z
HIGH = 0xFFFF_EAAB_54E0_0000  # 18446720620317114368: low bits are lost past 2^53
PARTS = 2
STEPS = 4000  # in each part
FORMATS = ("arrow", "parquet", "csv", "jsonl")
TYPED = {"address": "uint64"}  # readers of text guess, and some guess a double
CHECKPOINT_END = 13


class Expected:
    """What the text twin says, added up while it is written."""

    def __init__(self) -> None:
        self.events = 0
        self.alloc_bytes = 0
        self.addresses: set[int] = set()
        self.stacks = 0
        self.samples = 0
        self.sampled = 0
        self.by_part: list[tuple[int, int]] = []  # rows, bytes allocated
        self.lines: list[str] = []
        self.seqs: list[int] = []  # of the events, checkpoints not


def twin() -> Expected:
    """A program of two processes and two devices, in two parts."""
    rng = random.Random(1)
    x = Expected()
    out = x.lines
    out += [
        "gpurec 1",
        "meta start=2026-11-30T10:00:00.000000001Z start_monotonic=1000 end_monotonic=99000000 command=python",
        'device 0 uuid="GPU-a" name="H200" total=150754820096 nvml=1',
        'device 1 uuid="GPU-b" name="H200" total=150754820096 nvml=0',
        'process 1 pid=11 command="python train.py --name \\"é\\"" rank=0',
        'process 2 pid=22 command="./c" rank=1',
        'frame 1 python "/app/main.py" 42 "<module>"',
        'frame 2 python "/app/netz/größe.py" 7 "forward"',
        "stack 10 0 1",
        "stack 11 10 2",
        'name 1 "step"',
    ]
    at = 1000
    count = {1: 0, 2: 0}

    def seq(process: int) -> str:
        """The next number of a process's one thread; now and then some are lost."""
        count[process] += 1 + (rng.random() < 0.01) * rng.randrange(9)
        x.seqs.append(count[process])
        return f"seq={count[process]}"

    for _ in range(PARTS):
        out.append("part")
        rows, size_sum, live, scope = 0, 0, [], 0
        if x.by_part:
            out.append(f"{at} CheckpointEnd process=0 size=0")
            rows += 1
        for step in range(STEPS):
            at += rng.randrange(1, 5000)
            if live and (len(live) > 50 or rng.random() < 0.4):
                process, address = live.pop(rng.randrange(len(live)))
                out.append(f"{at} Free process={process} thread={process}00 {seq(process)} api=cuMemFree_v2 address={address:#x}")
            else:
                process = 1 + rng.randrange(2)
                address = HIGH + step * 512 + 1
                size = 512 * rng.randrange(1, 1 << 20)
                live.append((process, address))
                x.addresses.add(address)
                size_sum += size
                stack = rng.choice([0, 10, 11])
                x.stacks += stack == 11
                out.append(
                    f"{at} Alloc process={process} thread={process}00 {seq(process)} api=cuMemAlloc_v2 device={process - 1}"
                    f" address={address:#x} size={size} requested={size - 1} stack={stack}"
                )
            rows += 1
            if step % 100 == 0:
                used = rng.randrange(1 << 37)
                out.append(f"sample {at} device={step // 100 % 2} total=150754820096 used={used} free={150754820096 - used - 1} reserved=1")
                x.samples += 1
                x.sampled += used
        for process, address in live:
            at += 1
            rows += 1
            out.append(f"{at} Free process={process} thread={process}00 api=cuMemFree_v2 address={address:#x}")  # without a number
            x.seqs.append(0)
        x.by_part.append((rows, size_sum))
        x.events += rows
        x.alloc_bytes += size_sum
    x.events -= PARTS - 1  # a CheckpointEnd is no event of an export
    return x


def arrow_table(path: str) -> pyarrow.Table:
    with pyarrow.memory_map(path) as source:
        return pyarrow.ipc.open_file(source).read_all()


def ending(path: str) -> str:
    return os.path.splitext(path)[1].lstrip(".")


def in_pandas(path: str) -> pandas.DataFrame:
    return {
        "arrow": pandas.read_feather,
        "parquet": pandas.read_parquet,
        "csv": lambda p: pandas.read_csv(p, keep_default_na=False),
        "jsonl": lambda p: pandas.read_json(p, lines=True, precise_float=True),
    }[ending(path)](path)


def by_pandas(path: str, where: str | None, column: str) -> tuple[int, int, int, int]:
    d = in_pandas(path)
    assert d.isna().sum().sum() == 0, "a null turns integers into floating point"
    d = d.query(where) if where else d
    return len(d), sum(int(v) for v in d[column]), int(d[column].max()), int(d[column].min())


def typed_schema(path: str) -> pyarrow.Schema:
    with open(path, encoding="utf-8") as f:
        names = f.readline().rstrip("\n")
    names = names.split(",") if path.endswith(".csv") else json.loads(names)
    return pyarrow.schema([(n, pyarrow.uint64()) for n in names if n in TYPED])


def in_pyarrow(path: str) -> pyarrow.Table:
    match ending(path):
        case "parquet":
            return pyarrow.parquet.read_table(path)
        case "csv":
            return pyarrow.csv.read_csv(path, parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True), convert_options=pyarrow.csv.ConvertOptions(column_types=typed_schema(path), strings_can_be_null=False))
        case "jsonl":
            return pyarrow.json.read_json(path, parse_options=pyarrow.json.ParseOptions(explicit_schema=typed_schema(path)))
    return arrow_table(path)


def by_pyarrow(path: str, where: str | None, column: str) -> tuple[int, int, int, int]:
    rows = in_pyarrow(path).to_pylist()
    v = [r[column] for r in rows if where is None or eval(where, {}, r)]
    return len(v), sum(v), max(v), min(v)


def in_polars(path: str) -> polars.DataFrame:
    typed = {n: polars.UInt64 for n in TYPED}
    return {
        "arrow": polars.read_ipc,
        "parquet": polars.read_parquet,
        "csv": lambda p: polars.read_csv(p, schema_overrides=typed),
        "jsonl": lambda p: polars.read_ndjson(p, schema_overrides={n: typed[n] for n in typed_schema(p).names}),
    }[ending(path)](path)


def by_polars(path: str, where: str | None, column: str) -> tuple[int, int, int, int]:
    d = in_polars(path)
    if where:
        d = d.sql(f"select * from self where {where.replace('==', '=')}")
    v = d[column].to_list()
    return len(v), sum(v), max(v), min(v)


def by_duckdb(path: str, where: str | None, column: str) -> tuple[int, int, int, int]:
    connection, source = duckdb.connect(), f"'{path}'"
    if path.endswith(".arrow"):
        source = "part"
        connection.register(source, arrow_table(path))
    condition = f"where {where.replace('==', '=')}" if where else ""
    query = f"select count(*), sum({column}::hugeint), max({column}), min({column}) from {source} {condition}"
    [(n, total, most, least)] = connection.execute(query).fetchall()
    return n, int(total), int(most), int(least)


TOOLS = {"pandas": by_pandas, "pyarrow": by_pyarrow, "polars": by_polars, "duckdb": by_duckdb}

NUMBERS = """
    with rows as (select row_number() over () as row, * from part),
    runs as (select *, sum((seq > 0)::int) over (partition by process, thread order by row) as run from rows)
    select case when seq = 0 then 0 else max(seq) over same + count(*) filter (seq < 0) over same end::bigint
    from runs where kind <> $1 window same as (partition by process, thread, run order by row) order by row
"""


class Interop(unittest.TestCase):
    """One trace, read by everybody."""

    @classmethod
    def setUpClass(cls) -> None:
        cls.work = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.work.cleanup)
        cls.x = twin()
        cls.trace = os.path.join(cls.work.name, "two.gpurec")
        text = os.path.join(cls.work.name, "two.txt")
        with open(text, "w", encoding="utf-8") as f:
            f.write("\n".join(cls.x.lines) + "\n")
        cls.run_gpuanalyze("import", "text", text, "-o", cls.trace)
        for f in FORMATS:
            cls.run_gpuanalyze("export", cls.trace, "--to", f, "-o", os.path.join(cls.work.name, f))

    @classmethod
    def run_gpuanalyze(cls, *args: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run([GPUANALYZE, *args], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise AssertionError(f"gpuanalyze {' '.join(args)}: exit {done.returncode}\n{done.stderr}")
        return done

    def alike(self, path: str, where: str | None, column: str) -> tuple[int, int, int, int]:
        """The answer that all tools agree on."""
        answers = {}
        for name, tool in TOOLS.items():
            answers[name] = tool(path, where, column)
        self.assertEqual(len(set(answers.values())), 1, f"{path} {column} {where}: {answers}")
        return answers["pyarrow"]

    def test_parts_as_they_lie(self) -> None:
        seen = 0
        for i, (rows, allocated) in enumerate(self.x.by_part):
            events = os.path.join(self.trace, f"{i:05d}", "events.arrow")
            self.assertEqual(self.alike(events, None, "time")[0], rows)
            alloc = pyarrow.ipc.open_file(events).schema.field("kind")
            self.assertIn(b"Alloc", b" ".join(alloc.metadata.values()), "the numbers of kinds are named in the schema")
            n, total, most, _ = self.alike(events, "kind == 1", "size")
            self.assertEqual(total, allocated)
            self.assertGreater(n, 1000)
            _, _, most, least = self.alike(events, "kind == 1", "address")
            self.assertEqual(least & 1, 1, "the lowest bit of an address survives")
            self.assertGreaterEqual(most, HIGH + 1)
            seen += n
        self.assertEqual(len(self.x.by_part), PARTS)
        self.assertGreater(seen, 2000)

    def test_every_table_of_a_part(self) -> None:
        names = sorted(os.listdir(os.path.join(self.trace, "00000")))
        self.assertEqual(len(names), 7, names)
        for name in names:
            path = os.path.join(self.trace, "00000", name)
            column = {"events.arrow": "time", "samples.arrow": "time"}.get(name, "id")
            n, _, _, _ = self.alike(path, None, column)
            self.assertGreater(n, 0, name)

    def test_export(self) -> None:
        for f in FORMATS:
            with self.subTest(f):
                events = os.path.join(self.work.name, f, "events." + f)
                n, _, most, _ = self.alike(events, None, "address")
                self.assertEqual(n, self.x.events)
                self.assertEqual(most, max(self.x.addresses))
                self.assertEqual(self.alike(events, "kind == 'Alloc'", "size")[1], self.x.alloc_bytes)
                freed = self.alike(events, "kind == 'Free'", "size")
                self.assertEqual(freed[1], self.x.alloc_bytes, "every block is freed, and a Free knows its size")
                n, _, _, _ = self.alike(events, "function == 'forward'", "line")
                self.assertEqual(n, self.x.stacks)
                samples = os.path.join(self.work.name, f, "samples." + f)
                n, used, _, _ = self.alike(samples, None, "used")
                self.assertEqual((n, used), (self.x.samples, self.x.sampled))

    def test_hostile_names(self) -> None:
        name = '=cmd|\'/C\'!A0,"x"";\n\r\n\tDROP TABLE events;-- </script>\u202e\\N \U0001f600'
        text = os.path.join(self.work.name, "hostile.txt")
        with open(text, "w", encoding="utf-8", newline="") as f:
            f.write(f"gpurec 1\nprocess 1 pid=11 command={json.dumps(name, ensure_ascii=False)}\nframe 1 python {json.dumps(name, ensure_ascii=False)} 7 {json.dumps(name, ensure_ascii=False)}\nstack 10 0 1\n")
            f.write("1000 Alloc thread=5 api=cuMemAlloc_v2 device=0 address=0x10 size=7 stack=10\n")
        trace = os.path.join(self.work.name, "hostile.gpurec")
        self.run_gpuanalyze("import", "text", text, "-o", trace)
        for f in FORMATS:
            out = os.path.join(self.work.name, "hostile-" + f)
            self.run_gpuanalyze("export", trace, "--to", f, "-o", out)
            events = os.path.join(out, "events." + f)
            got = {
                "pandas": in_pandas(events)["function"].tolist(),
                "pyarrow": in_pyarrow(events)["function"].to_pylist(),
                "polars": in_polars(events)["function"].to_list(),
            }
            if f == "csv":
                with open(events, encoding="utf-8", newline="") as file:
                    got["csv"] = [row["function"] for row in csv.DictReader(file)]
            if f == "jsonl":
                with open(events, encoding="utf-8") as file:
                    got["json"] = [json.loads(line)["function"] for line in file]
            for tool, values in got.items():
                self.assertEqual(values, [name], (f, tool))
        out = os.path.join(self.work.name, "hostile-duckdb")
        self.run_gpuanalyze("export", trace, "--to", "duckdb", "-o", out)
        db = duckdb.connect()
        db.execute(f"SET file_search_path = '{out}'")
        with open(os.path.join(out, "load.sql"), encoding="utf-8") as f:
            db.execute(f.read())
        self.assertEqual(db.execute("select function, command from events").fetchall(), [(name, name)])

    def test_partitions(self) -> None:
        out = os.path.join(self.work.name, "parts")
        for f in FORMATS:
            self.run_gpuanalyze("export", self.trace, "--to", f, "--partition", "rank,device", "-o", f"{out}-{f}")
        whole = in_pandas(os.path.join(self.work.name, "parquet", "events.parquet"))
        whole = whole[whole["kind"] == "Alloc"]
        want = sorted((int(r), int(d), len(g), int(g["size"].sum())) for (r, d), g in whole.groupby(["rank", "device"]))
        self.assertGreater(len(want), 1)
        query = "select rank, device, count(*), sum(size)::bigint from {} where kind = 'Alloc' group by all"
        events = f"{out}-parquet/events"
        answers = {
            "duckdb": duckdb.sql(query.format(f"read_parquet('{events}/**/*.parquet', hive_partitioning = true)")).fetchall(),
            "duckdb, csv": duckdb.sql(query.format(f"read_csv('{out}-csv/events/**/*.csv', hive_partitioning = true)")).fetchall(),
            "duckdb, jsonl": duckdb.sql(query.format(f"read_json('{out}-jsonl/events/**/*.jsonl', hive_partitioning = true)")).fetchall(),
            "polars": polars.scan_parquet(events, hive_partitioning=True).sql(query.format("self")).collect().rows(),
        }
        for f, where in (("parquet", events), ("ipc", f"{out}-arrow/events")):
            read = pyarrow.dataset.dataset(where, format=f, partitioning="hive").to_table()
            answers[f"pyarrow, {f}"] = duckdb.sql(query.format("read")).fetchall()
        d = pandas.read_parquet(events)
        d = d[d["kind"] == "Alloc"]
        answers["pandas"] = [(r, dev, len(g), g["size"].sum()) for (r, dev), g in d.groupby(["rank", "device"], observed=True)]
        for name, got in answers.items():
            self.assertEqual(sorted(tuple(map(int, row)) for row in got), want, name)
        self.assertEqual(
            [n for n in sorted(os.listdir(f"{out}-parquet")) if not n.startswith(("samples", "scopes"))],
            ["allocations", "devices.parquet", "events", "processes.parquet", "traces.parquet"],
        )

    def test_numbers_of_events(self) -> None:
        """seq as a part has it, where -1 is one more than the last of the same process and thread, is what an export writes out."""
        parts, queries = [], []
        for i in range(PARTS):
            path = os.path.join(self.trace, f"{i:05d}", "events.arrow")
            d = pandas.read_feather(path)
            self.assertGreater((d["seq"] == -1).mean(), 0.9)
            lanes = d[d["seq"] != 0].groupby(["process", "thread"])["seq"]
            known = lanes.transform(lambda s: s.where(s > 0).ffill().astype("int64") + (s < 0).groupby((s > 0).cumsum()).cumsum())
            parts += known.reindex(d.index, fill_value=0)[d["kind"] != CHECKPOINT_END].tolist()

            connection = duckdb.connect()
            connection.register("part", arrow_table(path))
            queries += [row[0] for row in connection.execute(NUMBERS, [CHECKPOINT_END]).fetchall()]
        self.assertEqual(parts, self.x.seqs)
        self.assertEqual(queries, self.x.seqs)
        exported = pandas.read_feather(os.path.join(self.work.name, "arrow", "events.arrow"))
        self.assertEqual(exported["seq"].tolist(), self.x.seqs)

    def test_words_and_times(self) -> None:
        for f in FORMATS:
            with self.subTest(f):
                path = os.path.join(self.work.name, f, "events." + f)
                d = in_pandas(path)
                if f in ("arrow", "parquet"):
                    self.assertEqual(str(d["timestamp"].dtype), "datetime64[ns, UTC]")
                self.assertEqual(pandas.Timestamp(d["timestamp"].iloc[0]).value, START + int(d["time_ns"].iloc[0]))
                self.assertEqual(str(d["address"].dtype), "uint64")
                deep = d[d["function"] == "forward"].iloc[0]
                self.assertEqual(deep["stack"], "/app/main.py:42:<module>;/app/netz/größe.py:7:forward")
                self.assertEqual(d[d["pid"] == 11]["command"].iloc[0], 'python train.py --name "é"')
                self.assertEqual(d["process_acquired"].iloc[-1], 0)
                self.assertEqual(set(in_polars(path).columns), set(d.columns))

    def test_json_of_events(self) -> None:
        addresses, allocated = set(), 0
        for line in self.run_gpuanalyze("events", "--json", self.trace).stdout.splitlines():
            e = json.loads(line)
            if e["kind"] == "Alloc":
                addresses.add(int(e["address"], 16))
                allocated += e["size"]
        self.assertEqual((addresses, allocated), (self.x.addresses, self.x.alloc_bytes))


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        GPUANALYZE = os.path.abspath(sys.argv.pop(1))
    unittest.main()
