"""The parts of a trace as they lie, with pyarrow: rows, and words for numbers.

Promises: closed parts are read whole, a growing or cut one to its last whole
batch, and a part that is deleted meanwhile is passed over. Nothing is folded
here: what an event means for what is live is gpuanalyze's to say.
"""

import json
import os
from typing import Any, Callable, Dict, Iterable, List, Tuple

from gpurec import _wire

MAGIC = 8  # bytes before the first message of an Arrow file


def arrow() -> Any:
    """The module pyarrow, with what is used of it."""
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.ipc
    except ImportError as e:
        raise ImportError("reading a trace takes pyarrow: pip install pyarrow") from e
    return pyarrow


class Parts:
    """What the files of one trace say."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._cut: List[str] = []  # files without a footer, as far as they have been read
        with open(os.path.join(path, "trace.json"), encoding="utf-8") as f:
            self.meta: Dict[str, Any] = json.load(f)
        if self.meta.get("version") != _wire.VERSION:
            raise ValueError("%s is of version %s, and this package reads %d" % (path, self.meta.get("version"), _wire.VERSION))

    def tables(self, name: str) -> List[Any]:
        """A table of each part, in order."""
        tables = []
        for part in self._numbered():
            path = os.path.join(self.path, part, name + ".arrow")
            try:
                rows, whole = _read(path)
            except FileNotFoundError:
                continue  # deleted since it was listed, or not begun yet
            tables.append(rows)
            if not whole and path not in self._cut:
                self._cut.append(path)
        tables = [t for t in tables if t is not None]
        if not tables:
            raise ValueError("%s: there is nothing to read in %s.arrow" % (self.path, name))
        return tables

    def partial(self) -> str:
        """Why events are missing, as far as trace.json, the parts' numbers and
        what has been read say; empty where they say nothing. gpuanalyze looks closer."""
        why = []
        if self.meta.get("ending") != "closed":
            why.append("it is growing, or did not end in good order")
        elif self._cut:
            why.append("cut: " + ", ".join(self._cut))
        lost = self.meta.get("stats", {}).get("lost", 0)
        if lost:
            why.append("%d events were lost" % lost)
        numbers = [int(n) for n in self._numbered()]
        gone = sum(b - a - 1 for a, b in zip(numbers, numbers[1:]))
        if gone:
            why.append("%d parts are missing" % gone)
        return ", ".join(why)

    def _numbered(self) -> List[str]:
        return sorted(n for n in os.listdir(self.path) if n.isdigit())

    def rows(self, name: str) -> Any:
        return arrow().concat_tables(self.tables(name))

    def last(self, name: str) -> Any:
        """A table of which the last row of an id holds, in the order of ids."""
        rows = self.rows(name)
        at = {id: i for i, id in enumerate(rows["id"].to_pylist())}
        return rows.take([at[id] for id in sorted(at)])

    def clock(self, column: Any) -> Tuple[Any, Any]:
        """A column of CLOCK_MONOTONIC as (time since the start, wall clock)."""
        pa = arrow()
        since = pa.compute.subtract(column, pa.scalar(self.meta["start_monotonic"], pa.int64()))
        wall = pa.compute.add(since, pa.scalar(_nanoseconds(self.meta["start"]), pa.int64()))
        return since, wall.cast(pa.timestamp("ns", "UTC"))

    def stacks(self, ids: Iterable[int]) -> Dict[int, Tuple[str, str, int, str]]:
        """Of stacks their text, outermost frame first, and the innermost frame's
        file, line and function."""
        nodes, frames = self.rows("stacks"), self.rows("frames")
        node = dict(zip(nodes["id"].to_pylist(), zip(nodes["parent"].to_pylist(), nodes["frame"].to_pylist())))
        columns = (frames[c].to_pylist() for c in ("id", "kind", "file", "line", "function"))
        frame = {id: rest for id, *rest in zip(*columns)}
        text = {id: _frame_text(*rest) for id, rest in frame.items()}
        found = {}
        for id in ids:
            words: List[str] = []
            at = id
            while at != 0:
                if at not in node or len(words) >= len(node):
                    words.append("unknown")  # the callers outside of what is known
                    break
                at, number = node[at]
                words.append(text.get(number, "unknown"))
            _, *innermost = frame.get(node.get(id, (0, 0))[1], (0, "", 0, ""))
            found[id] = (";".join(reversed(words)), *innermost)
        return found


def words(field: Any) -> Dict[int, str]:
    """The names of a column's numbers, from its schema."""
    values = (field.metadata or {}).get(b"values", b"").decode().split()
    return {int(number): name for number, _, name in (v.partition("=") for v in values)}


def each(column: Any, value: Callable[[int], Any], type: Any) -> Any:
    """column with value of each of its numbers."""
    coded = column.combine_chunks().dictionary_encode()
    return arrow().array([value(n) for n in coded.dictionary.to_pylist()], type).take(coded.indices)


def say(column: Any, word: Callable[[int], str]) -> Any:
    """column's numbers as texts, each text kept once: the stacks of a day are
    few and long."""
    pa = arrow()
    coded = column.combine_chunks().dictionary_encode()
    texts = [word(n) for n in coded.dictionary.to_pylist()]
    place = {t: i for i, t in enumerate(dict.fromkeys(texts))}
    indices = pa.array([place[t] for t in texts], pa.int32()).take(coded.indices)
    return pa.DictionaryArray.from_arrays(indices, pa.array(list(place), pa.string()))


def _read(path: str) -> Tuple[Any, bool]:
    """A file's rows, None where not even its schema is written yet, and whether
    it was closed."""
    pa = arrow()
    damage = (pa.ArrowInvalid, pa.ArrowNotImplementedError)  # the second of types that Arrow has not
    with pa.OSFile(path) as source:
        try:
            return pa.ipc.open_file(source).read_all(), True
        except damage:
            pass  # no footer: growing, or cut
    with open(path, "rb") as f:
        f.seek(MAGIC)
        batches = []
        try:
            reader = pa.ipc.open_stream(f)
        except damage:
            return None, False
        try:
            for batch in reader:
                batches.append(batch)
        except damage + (OSError,):
            pass  # the last batch is not whole
        return pa.Table.from_batches(batches, reader.schema), False


def _frame_text(kind: int, file: str, line: int, function: str) -> str:
    if kind in (_wire.FRAME_THREAD, _wire.FRAME_LABEL):
        return function
    return "%s:%s:%s" % (file, line or None, function)


def _nanoseconds(text: str) -> int:
    """An RFC 3339 instant with up to nine decimals, since 1970."""
    from datetime import datetime

    zone = "+00:00"
    if text.endswith("Z"):
        text = text[:-1]
    elif text[-6] in "+-":
        text, zone = text[:-6], text[-6:]
    whole, _, fraction = text.partition(".")
    return int(datetime.fromisoformat(whole + zone).timestamp()) * 10**9 + int((fraction + "0" * 9)[:9])
