"""gpurec.open: its tables against gpuanalyze's own answers.

Run with pandas, pyarrow and polars, after make build; without pyarrow only what
is said then is tested. The traces are those of testdata/h200, one in parts, with
something live before it and a part gone, and a cut one.
"""

import json
import os
import shutil
import subprocess
import tempfile
import unittest
import warnings

from support import PACKAGE, Case

ROOT = os.path.dirname(os.path.dirname(PACKAGE))
H200 = os.path.join(ROOT, "testdata", "h200")
GPUANALYZE = os.environ.get("GPUANALYZE", os.path.join(ROOT, "bin", "gpuanalyze"))
TRAIN = os.path.join(H200, "train.gpurec")

try:
    import sys

    sys.path.insert(0, PACKAGE)
    import pandas
    import polars
    import pyarrow.compute
    import pyarrow.ipc

    import gpurec
except ImportError:
    pyarrow = None

DICTIONARY = os.path.join(ROOT, "format", "tables.md")  # GPUREC_UPDATE=1 rewrites it

TWIN = """gpurec 1
meta start=2026-11-30T10:00:00.000000001Z start_monotonic=1000 end_monotonic=9000 command=python
device 0 uuid="GPU-a" name="H200" total=150754820096 nvml=0
process 1 pid=11 command="python" rank=0
frame 1 python "/app/größe.py" 7 "forward"
frame 2 thread "" 0 "[thread reader]"
stack 10 0 1
stack 11 10 2
name 1 "step"
part
1000 Live process=1 thread=11 api=cuMemAlloc_v2 device=0 address=0xffffeaab54e00001 size=100 stack=11
1050 CheckpointEnd process=0 size=1
1100 Alloc process=1 thread=11 seq=1 api=cuMemAlloc_v2 device=0 address=0x20 size=7 requested=5 stack=10
sample 1200 device=0 total=150754820096 used=5 free=6 reserved=1
part
1000 Live process=1 thread=11 api=cuMemAlloc_v2 device=0 address=0xffffeaab54e00001 size=100 stack=11
1100 Live process=1 thread=11 api=cuMemAlloc_v2 device=0 address=0x20 size=7 requested=5 seq=1 stack=10
1250 CheckpointEnd process=0 size=2
1300 Free process=1 thread=11 seq=2 api=cuMemFree_v2 address=0x20
1400 Mark process=1 thread=11 seq=3 api=scope name=1
part 9
1000 Live process=1 thread=11 api=cuMemAlloc_v2 device=0 address=0xffffeaab54e00001 size=100 stack=11
1500 Live process=1 thread=11 seq=4 api=cuMemAlloc_v2 device=0 address=0x30 size=9 stack=10
1550 CheckpointEnd process=0 size=2
1600 Free process=1 thread=11 seq=6 api=cuMemFree_v2 address=0x30
"""


def dictionary(trace):
    """The data dictionary: what the schemas of a trace's files say of themselves."""
    out = ["# The tables of a part", "", "From the schemas' own metadata; `cuda/python/tests/test_trace.py` holds it to them."]
    out += ["Every part has these files, Arrow IPC with zstd, without nulls; `gpurec.open` and `gpuanalyze export` join them."]
    tables = ("events", "samples", "processes", "devices", "stacks", "frames", "names")
    for table in tables:
        with pyarrow.OSFile(os.path.join(trace, "00000", table + ".arrow")) as f:
            schema = pyarrow.ipc.open_file(f).schema
        out += ["", "## %s.arrow: %s" % (table, schema.metadata[b"doc"].decode()), ""]
        out += ["| column | type | unit | meaning |", "|---|---|---|---|"]
        for field in schema:
            said = {k.decode(): v.decode() for k, v in (field.metadata or {}).items()}
            meaning = "; ".join(said[k].replace(" ", ", ") if k == "values" else said[k] for k in ("doc", "values") if said.get(k))
            out.append("| `%s` | %s | %s | %s |" % (field.name, field.type, said.get("unit", ""), meaning.replace("|", "\\|")))
    return "\n".join(out) + "\n"


def quiet(table):
    """A table whose warnings another test looks at."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return table()


class TestWithoutPyarrow(Case):
    def test_what_it_says(self):
        _, out, err = self.run_python(
            """
            import sys, gpurec
            print(gpurec.open.__doc__ is None, "json" in sys.modules)
            sys.modules["pyarrow"] = None
            trace = gpurec.open(%r)
            print(trace.meta["ending"])
            try: trace.events()
            except ImportError as e: print(e)
            """
            % TRAIN
        )
        self.assertEqual(out, "False False\nclosed\nreading a trace takes pyarrow: pip install pyarrow\n")
        self.assertEqual(err, "")

    def test_no_trace(self):
        _, out, _ = self.run_python(
            """
            import gpurec
            try: gpurec.open("/nonexistent.gpurec")
            except FileNotFoundError as e: print(e.filename)
            """
        )
        self.assertEqual(out, "/nonexistent.gpurec/trace.json\n")


@unittest.skipIf(pyarrow is None, "pandas, polars and pyarrow are not all here")
class TestTables(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.mkdtemp(prefix="gpurec-trace-")
        cls.addClassCleanup(shutil.rmtree, cls.dir)
        cls.traces = [os.path.join(H200, n + ".gpurec") for n in ("train", "cupy", "flavours")]
        text, two = os.path.join(cls.dir, "two.txt"), os.path.join(cls.dir, "two.gpurec")
        with open(text, "w", encoding="utf-8") as f:
            f.write(TWIN)
        cls.run_gpuanalyze("import", "text", text, "-o", two)
        cls.traces.append(two)
        cut = os.path.join(cls.dir, "cut.gpurec")
        shutil.copytree(os.path.join(H200, "steps.gpurec"), cut)
        events, samples = (os.path.join(cut, "00000", name + ".arrow") for name in ("events", "samples"))
        os.truncate(events, os.path.getsize(events) * 2 // 3)  # in a batch
        os.truncate(samples, os.path.getsize(samples) - 100)  # in the footer, after its one batch
        cls.cut = cut

    @classmethod
    def run_gpuanalyze(cls, *args, status=0):
        done = subprocess.run([GPUANALYZE, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if done.returncode != status:
            raise AssertionError("gpuanalyze %s: exit %d\n%s" % (" ".join(args), done.returncode, done.stderr.decode()))
        return done.stdout.decode()

    def exported(self, trace, table, status=0):
        out = os.path.join(self.dir, "out-" + os.path.basename(trace))
        if not os.path.exists(out):
            self.run_gpuanalyze("export", trace, "--to", "arrow", "-o", out, status=status)
        with pyarrow.OSFile(os.path.join(out, table + ".arrow")) as f:
            return pyarrow.ipc.open_file(f).read_all()

    def equal(self, got, want, where=None):
        """Every column of got that want has, in the rows where got's column named so is not -1."""
        shared = [c for c in got.column_names if c in want.column_names]
        self.assertEqual(got.num_rows, want.num_rows)
        for c in shared:
            g, w = got[c].cast(want[c].type), want[c]
            if c in (where or ()):
                known = pyarrow.compute.not_equal(g, -1)
                g, w = g.filter(known), w.filter(known)
                self.assertGreater(len(g), 0, c)
            if not g.equals(w):
                i = pyarrow.compute.index(pyarrow.compute.equal(g, w), False).as_py()
                self.fail("%s of row %d: %r and not %r" % (c, i, g[i].as_py(), w[i].as_py()))
        return shared

    def test_events_and_samples(self):
        for trace in self.traces + [self.cut]:
            with self.subTest(os.path.basename(trace)):
                status = 3 if trace in (self.cut, self.traces[-1]) else 0
                t = gpurec.open(trace)
                events = quiet(t.events)
                shared = self.equal(events, self.exported(trace, "events", status), where=("device", "size", "requested"))
                self.assertEqual(set(events.column_names) - set(shared), {"parent"})
                samples = t.samples()
                self.assertEqual(self.equal(samples, self.exported(trace, "samples", status)), samples.column_names)
                self.assertGreater(min(events.num_rows, samples.num_rows), 0)
        with self.assertWarnsRegex(UserWarning, "partial: cut: .*00000/events.arrow"):
            rows = gpurec.open(self.cut).events().num_rows
        whole = gpurec.open(os.path.join(H200, "steps.gpurec")).events().num_rows
        self.assertTrue(whole // 3 < rows < whole * 2 // 3, "to the last whole batch: %d of %d" % (rows, whole))

    def test_a_part_deleted_and_one_empty(self):
        trace = os.path.join(self.dir, "rest.gpurec")
        shutil.copytree(self.traces[-1], trace)
        shutil.rmtree(os.path.join(trace, "00000"))
        os.mkdir(os.path.join(trace, "00010"))  # begun, and without a file yet
        with self.assertWarnsRegex(UserWarning, "partial: 7 parts are missing"):
            kinds = gpurec.open(trace).events()["kind"].to_pylist()
        self.assertEqual(kinds, ["Live", "Live", "Free", "Mark", "Live", "Free"])
        self.assertRaisesRegex(ValueError, "nothing to read in samples", gpurec.open(self.empty()).samples)

    def empty(self):
        trace = os.path.join(self.dir, "empty.gpurec")
        os.mkdir(trace)
        shutil.copy(os.path.join(TRAIN, "trace.json"), trace)
        return trace

    def test_damaged_types(self):
        trace = os.path.join(self.dir, "types.gpurec")
        shutil.copytree(TRAIN, trace)
        path = os.path.join(trace, "00000", "devices.arrow")
        with open(path, "rb") as f:
            whole = f.read()[:-20]  # without a footer the head's schema counts
        for i in range(8, 1000):  # the width of a number, somewhere in the schema
            damaged = whole[:i] + b"\xff" + whole[i + 1 :]
            try:
                pyarrow.ipc.open_stream(damaged[8:])
            except pyarrow.ArrowNotImplementedError:
                break
            except Exception:
                pass
        else:
            self.fail("no type is damaged")
        with open(path, "wb") as f:
            f.write(damaged)
        self.assertRaisesRegex(ValueError, "nothing to read in devices", gpurec.open(trace).devices)

    def test_dictionary(self):
        text = dictionary(self.traces[-1])
        if os.environ.get("GPUREC_UPDATE"):
            with open(DICTIONARY, "w", encoding="utf-8") as f:
                f.write(text)
        with open(DICTIONARY, encoding="utf-8") as f:
            self.assertEqual(f.read(), text)
        self.assertGreater(text.count("| byte |"), 10)

    def test_devices(self):
        t = gpurec.open(TRAIN)
        [want] = json.loads(self.run_gpuanalyze("devices", "--json", TRAIN))["traces"][0]["devices"]
        [got] = t.devices().to_pylist()
        self.assertEqual(got, {c: want[c] for c in ("device", "uuid", "name", "total", "nvml_index")})

    def test_lines(self):
        for at in ("total", "peak"):
            rows = gpurec.open(TRAIN, gpuanalyze=GPUANALYZE).lines(at=at).to_pylist()
            want = self.run_gpuanalyze("lines", "--at", at, "--full-paths", TRAIN).splitlines()
            names = [r["function"] if r["kind"] in ("thread", "label") else "%s:%d:%s" % (r["file"], r["line"], r["function"]) for r in rows]
            names = ["  " * r["depth"] + n if r["depth"] else "_root" for r, n in zip(rows, names)]
            printed = [w.rpartition(" (")[0] for w in want if " (" in w and not w.startswith("device")]
            if at == "total":
                self.assertEqual(names, printed)
            else:  # a recursion is printed as one line with a count, what is below it further out
                unfolded = [p.strip() for p in printed if " × " not in p]
                self.assertGreater(len(unfolded), 50)
                self.assertEqual(set(unfolded) - {n.strip() for n in names}, set())
            for r in rows:
                under = [c for c in rows if c["parent"] == r["id"]]
                self.assertTrue(all(c["depth"] == r["depth"] + 1 for c in under))
                self.assertLessEqual(sum(c["used"] for c in under), r["used"])

    def test_contexts(self):
        for curve in ("used", "acquired"):
            got = gpurec.open(TRAIN, gpuanalyze=GPUANALYZE).contexts(curve=curve).to_pylist()
            want = self.exported(TRAIN, "scopes").to_pylist()
            self.assertGreater(len(got), 50)
            for g, w in zip(sorted(got, key=lambda r: r["scope"]), sorted(want, key=lambda r: r["scope"])):
                for c in ("scope", "parent", "name", "domain", "pid", "thread", "begin_ns", "end_ns"):
                    self.assertEqual(g[c], w[c], c)
                for c, e in dict(used="delta", peaked="peaked", begin="begin", end="end", max="max").items():
                    self.assertEqual(g[c], w[curve + "_" + e], c)
            self.assertEqual(len(got), len(want))

    def test_frames_of_pandas_and_polars(self):
        t = gpurec.open(TRAIN, gpuanalyze=GPUANALYZE)
        for table in ("events", "lines", "contexts", "devices", "samples"):
            d, p = t.to_pandas(table), t.to_polars(table)
            self.assertEqual(list(d.columns), p.columns)
            self.assertEqual(len(d), len(p))
            self.assertEqual(d.isna().sum().sum(), 0, "a null turns integers into floating point")
        d, p = t.to_pandas(), t.to_polars()
        total = int(d[d["kind"] == "Alloc"]["size"].sum())
        self.assertEqual(total, p.filter(polars.col("kind") == "Alloc")["size"].sum())
        self.assertIsInstance(d, pandas.DataFrame)
        self.assertRaisesRegex(ValueError, "no table 'event'", t.to_pandas, "event")

    def test_gpuanalyze_absent_wrong_and_partial(self):
        path, os.environ["PATH"] = os.environ["PATH"], "/nonexistent"
        try:
            self.assertRaisesRegex(FileNotFoundError, "lines takes gpuanalyze", gpurec.open(TRAIN).lines)
        finally:
            os.environ["PATH"] = path
        t = gpurec.open(TRAIN, gpuanalyze=GPUANALYZE)
        self.assertRaisesRegex(RuntimeError, "gpuanalyze lines", t.lines, at="nowhere")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            gpurec.open(self.cut, gpuanalyze=GPUANALYZE).contexts()
        self.assertRegex(str(caught[0].message), "partial: .")


if __name__ == "__main__":
    unittest.main()
