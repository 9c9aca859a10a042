"""A recorded trace as tables, for programs that ask on.

events, samples and devices come from the files themselves; lines and contexts
are folds over them, which are gpuanalyze's, so it is run for those.
"""

import json
import os
import shutil
import subprocess
import warnings
from typing import Any, Dict, Iterator, List, Optional, Tuple

from gpurec import _parts

TABLES = ("events", "lines", "contexts", "devices", "samples")


class Trace:
    """A trace. Each table is a pyarrow.Table, read when it is asked for.

    Sizes are bytes and times nanoseconds; unknown is -1 or 0, and there are no
    nulls. ``meta`` is what trace.json says: who, when, how it ended.
    """

    def __init__(self, path: str, gpuanalyze: Optional[str] = None) -> None:
        self._parts = _parts.Parts(os.fspath(path))
        self._gpuanalyze = gpuanalyze
        self.path = self._parts.path
        self.meta = self._parts.meta

    def __repr__(self) -> str:
        return "gpurec.open(%r)" % self.path

    def events(self) -> Any:
        """A row an event, in the order of effect: kind, layer, class, api,
        flags, names and stacks in words. What a checkpoint restates is left
        out, but for what was taken before the first part that is there, or in
        one that is gone (kind Live). size and device of a Free are its allocation's: -1 here,
        and joined by ``gpuanalyze export``."""
        pa, parts = _parts.arrow(), self._parts
        t = pa.concat_tables(_news(parts.tables("events")))
        if parts.partial():
            warnings.warn("%s: partial: %s" % (self.path, parts.partial()), stacklevel=2)
        names = parts.rows("names")
        name = dict(zip(names["id"].to_pylist(), names["text"].to_pylist()))
        stack = parts.stacks(pa.compute.unique(t["stack"]).to_pylist())
        apis = {int(n): text for n, text in parts.meta.get("apis", {}).items()}
        kinds, layers, classes, bits = (_parts.words(t.schema.field(n)) for n in ("kind", "layer", "class", "flags"))
        since, wall = parts.clock(t["time"])
        made = {
            "timestamp": wall,
            "time_ns": since,
            "duration_ns": t["duration"],
            "kind": _parts.say(t["kind"], kinds.__getitem__),
            "layer": _parts.say(t["layer"], layers.__getitem__),
            "class": _parts.say(t["class"], classes.__getitem__),
            "api": _parts.say(t["api"], lambda n: apis.get(n, str(n) if n else "none")),
            "pid": self._pids(t["process"]),
            "file": _parts.say(t["stack"], lambda n: stack[n][1]),
            "line": _parts.each(t["stack"], lambda n: stack[n][2], pa.int32()),
            "function": _parts.say(t["stack"], lambda n: stack[n][3]),
            "stack": _parts.say(t["stack"], lambda n: stack[n][0]),
            "name": _parts.say(t["name"], lambda n: name.get(n, "")),
            "note": _parts.say(t["note"], lambda n: name.get(n, "")),
            "flags": _parts.say(t["flags"], lambda n: "|".join(w for b, w in bits.items() if n & b)),
        }
        order: Tuple[str, ...] = ("timestamp", "time_ns", "duration_ns", "kind", "layer", "class", "api", "process", "pid", "thread")
        order += ("device", "address", "size", "requested", "file", "line", "function", "stack", "scope", "parent")
        order += ("name", "note", "status", "flags", "object", "allocated", "reserved", "cuctx", "stream", "pool")
        return pa.table({c: made[c] if c in made else t[c] for c in order})

    def samples(self) -> Any:
        """NVML's readings: a row a device and moment, and one a process."""
        pa, parts = _parts.arrow(), self._parts
        t = parts.rows("samples")
        since, wall = parts.clock(t["time"])
        made = {"timestamp": wall, "time_ns": since, "nvml_api": t["api"], "pid": self._pids(t["process"])}
        order: Tuple[str, ...] = ("timestamp", "time_ns", "device", "total", "used", "free", "reserved", "peak_used", "nvml_api")
        order += ("process", "pid", "process_used")
        return pa.table({c: made[c] if c in made else t[c] for c in order})

    def devices(self) -> Any:
        """A row a device; join other sources by uuid."""
        return self._parts.last("devices").rename_columns({"id": "device", "nvml": "nvml_index"})

    def lines(self, at: str = "total", **filters: Any) -> Any:
        """``gpuanalyze lines`` as rows, callers before what they called: id and
        parent are numbers of rows of a tree, -1 the parent of its root. at is
        total, peak, end or a TIME; filters are gpuanalyze's flags, as
        ``lines(at="peak", device=0, max_depth=3)``."""
        pa = _parts.arrow()
        rows: List[Tuple[Any, ...]] = []
        for i, tree in enumerate(self._ask("lines", at=at, **filters)["trees"]):
            rows.extend((i, tree.get("device", -1), tree.get("time_ns", -1)) + row for row in _flat(tree["tree"]))
        text, number = pa.string(), pa.int64()
        columns = dict(tree=number, device=number, time_ns=number, id=number, parent=number, depth=number, kind=text)
        columns.update(file=text, line=number, function=text, used=number, acquired=number)
        return _table(columns, rows)

    def contexts(self, curve: str = "used", **filters: Any) -> Any:
        """``gpuanalyze contexts`` as rows: of each scope, on the used, acquired
        or nvml curve, its begin, end and max, used (end less begin) and peaked
        (max less the higher of both). known is false where the curve has no
        value there, and these are 0."""
        pa = _parts.arrow()
        rows = []
        for s in self._ask("contexts", curve=curve, **filters)["scopes"]:
            known = (s["bytes"][c] for c in ("known", "used", "peaked", "begin", "end", "max"))
            who = (s["id"], s.get("parent", 0), s["name"], s["n"], s.get("domain", ""), s["source"], s["pid"])
            when = (s["thread"], s["depth"], s["begin_ns"], s["end_ns"], s.get("open", False))
            rows.append(who + when + tuple(known))
        text, number, boolean = pa.string(), pa.int64(), pa.bool_()
        columns = dict(scope=pa.uint64(), parent=pa.uint64(), name=text, n=number, domain=text, source=text, pid=number)
        columns.update(thread=number, depth=number, begin_ns=number, end_ns=number, open=boolean, known=boolean)
        columns.update(used=number, peaked=number, begin=number, end=number, max=number)
        return _table(columns, rows)

    def to_pandas(self, table: str = "events", **arguments: Any) -> Any:
        """One of the tables as a pandas.DataFrame; arguments are its method's."""
        _need("pandas")
        return self._table(table, arguments).to_pandas()

    def to_polars(self, table: str = "events", **arguments: Any) -> Any:
        """One of the tables as a polars.DataFrame; arguments are its method's."""
        return _need("polars").from_arrow(self._table(table, arguments))

    def _pids(self, processes: Any) -> Any:
        rows = self._parts.last("processes")
        pid = dict(zip(rows["id"].to_pylist(), rows["pid"].to_pylist()))
        return _parts.each(processes, lambda n: pid.get(n, 0), _parts.arrow().int32())

    def _table(self, table: str, arguments: Dict[str, Any]) -> Any:
        if table not in TABLES:
            raise ValueError("no table %r: there are %s" % (table, ", ".join(TABLES)))
        return getattr(self, table)(**arguments)

    def _ask(self, answer: str, **flags: Any) -> Any:
        """gpuanalyze's answer; what it says of its completeness is a warning
        where events are missing."""
        program = self._gpuanalyze or shutil.which("gpuanalyze")
        if program is None:
            raise FileNotFoundError("%s takes gpuanalyze, which is not on PATH: gpurec.open(TRACE, gpuanalyze=ITS_PATH)" % answer)
        command = [program, answer, "--json", "--quiet"]
        command += ["--%s=%s" % (name.replace("_", "-"), value) for name, value in flags.items()]
        done = subprocess.run(command + ["--", self.path], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if done.returncode not in (0, 3):
            raise RuntimeError("gpuanalyze %s: %s" % (answer, done.stderr.decode("utf-8", "replace").strip()))
        found = json.loads(done.stdout)
        if done.returncode == 3:
            warnings.warn("%s: partial: %s" % (self.path, done.stderr.decode("utf-8", "replace").strip()), stacklevel=3)
        return found


def _news(tables: List[Any]) -> List[Any]:
    """Parts' events without what a checkpoint says again. Of its rows only those
    of kind Live have the time of their Alloc: later than all that the parts
    before said, it was in none of them."""
    pa = _parts.arrow()
    compute, newest, news = pa.compute, -1, []
    for t in tables:
        kinds = _parts.words(t.schema.field("kind"))
        again = [n for n, word in kinds.items() if word.startswith("Live") or word == "CheckpointEnd"]
        live = next(n for n, word in kinds.items() if word == "Live")
        event = compute.invert(compute.is_in(t["kind"], value_set=pa.array(again, t["kind"].type)))
        new = compute.and_(compute.equal(t["kind"], live), compute.greater(t["time"], newest))
        news.append(t.filter(compute.or_(event, new)))
        newest = max(newest, compute.max(t["time"]).as_py() or 0)
    return news


def _flat(root: Dict[str, Any]) -> Iterator[Tuple[Any, ...]]:
    """The nodes of a tree, each after its parent."""
    number = 0
    left = [(root, -1, 0)]
    while left:
        node, parent, depth = left.pop()
        yield (number, parent, depth, node.get("kind", ""), node.get("file", ""), node.get("line", 0)) + (
            node.get("function", ""), node["used"], node["acquired"])
        left.extend((child, number, depth + 1) for child in reversed(node.get("children", ())))
        number += 1


def _table(columns: Dict[str, Any], rows: List[Tuple[Any, ...]]) -> Any:
    pa = _parts.arrow()
    values = list(zip(*rows)) if rows else [()] * len(columns)
    return pa.table({n: pa.array(v, t) for (n, t), v in zip(columns.items(), values)})


def _need(name: str) -> Any:
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as e:
        raise ImportError("this takes %s: pip install %s" % (name, name)) from e
