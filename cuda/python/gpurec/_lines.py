"""CuPy's LineProfileHook, recorded: the lines that took the memory, in the
program itself and in the trace.

What print_report prints is counted here, by CuPy's own callbacks, as CuPy's hook
counts it: so it needs no recording, and prints at any moment. In a recording the
stretch is a scope too, and ``gpuanalyze lines --scope NAME`` prints the same. What
PyTorch and plain CUDA take no callback tells: of sources="all" it is gpuanalyze that
counts, in the trace as far as it has come.
"""

import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from types import FrameType
from typing import Any, Dict, Optional, Tuple

from gpurec import _hook, _wire, scope
from gpurec._answer import REPORT, NoAnswer, ask, say

_HERE = __file__


class _Node:
    """A line in the tree, or its root; both numbers are of all that is below too."""

    __slots__ = ("acquired", "children", "used")

    def __init__(self) -> None:
        self.used = self.acquired = 0
        self.children: Dict[Tuple[str, Optional[int], str], _Node] = {}  # in the order first seen


class LineProfileHook(scope):
    """The memory that CuPy's pool handed out and acquired while it was entered, by
    line, as CuPy's own hook of this name counts it.

        with gpurec.LineProfileHook() as hook:
            ...
        hook.print_report()

    It belongs to the thread that enters it, as CuPy's does, and counts on when
    entered again. Any number of them, and CuPy's own, may be active at once: none
    of them stands in CuPy's registry under its name. max_depth keeps the root and
    the outermost lines, the root is depth 1; 0 or less keeps all. Its six callbacks
    may be called by any pool.

    With sources="all" the lines are those of PyTorch and of plain CUDA too, of the
    entry made last, and print_report has gpuanalyze (on PATH) read them from the
    trace, which takes a second and more as the trace grows.
    """

    __slots__ = ("_root", "max_depth", "sources")

    def __init__(self, max_depth: int = 0, *, name: str = "LineProfileHook", sources: str = "cupy") -> None:
        if sources not in ("cupy", "all"):
            raise ValueError("sources %r is none of cupy, all" % (sources,))
        super().__init__(name, "cupy" if sources == "cupy" else None)
        self.max_depth, self.sources = max_depth, sources
        self._root = _Node()

    def _begin(self) -> int:
        _enter(self)
        return super()._begin()

    def _end(self, id: int) -> None:
        super()._end(id)
        _leave(self)

    def malloc_preprocess(self, **given: Any) -> None:
        """CuPy's pool begins to hand out memory."""
        self._add(given["mem_size"], 0, sys._getframe(1))

    def alloc_preprocess(self, **given: Any) -> None:
        """CuPy's pool begins to take memory from the driver."""
        self._add(0, given["mem_size"], sys._getframe(1))

    def malloc_postprocess(self, **given: Any) -> None:
        """Nothing: attempts are counted, as CuPy counts them."""

    def alloc_postprocess(self, **given: Any) -> None:
        """Nothing: attempts are counted, as CuPy counts them."""

    def free_preprocess(self, **given: Any) -> None:
        """Nothing: what was handed out once is never subtracted."""

    def free_postprocess(self, **given: Any) -> None:
        """Nothing: what was handed out once is never subtracted."""

    def _add(self, used: int, acquired: int, frame: Optional[FrameType]) -> None:
        lines = []
        while frame is not None:
            code = frame.f_code
            if code.co_filename != _HERE:
                lines.append((code.co_filename, frame.f_lineno, code.co_name))
            frame = frame.f_back
        node = self._root
        node.used += used
        node.acquired += acquired
        if self.max_depth > 0:
            del lines[: max(len(lines) - self.max_depth + 1, 0)]
        for line in reversed(lines):
            child = node.children.get(line)
            if child is None:
                child = node.children[line] = _Node()
            node = child
            node.used += used
            node.acquired += acquired

    def print_report(self, file: Any = None) -> None:
        """Print the tree, to standard output without a file. It may be printed
        while active, and again. What cannot be known is said, in place of the tree."""
        if self.sources == "cupy":
            text = _text(self._root)
        elif _hook.active():
            try:
                text = _from_trace(self._id(), self.max_depth)
            except NoAnswer as e:
                text = "_root: unknown [%s]\n" % e
        else:
            text = _text(self._root) + "[CuPy's pool alone: PyTorch and plain CUDA are counted under gpurec run]\n"
        say(text, file, flush=True)


_moments = itertools.count(1)
_PATIENCE = 20.0  # seconds until what was published must be in the files; it takes less than one


def _from_trace(id: int, max_depth: int) -> str:
    """What gpuanalyze lines prints of a scope up to now:

    1 a report of the scope under a text of its own, for somebody who records
    2 the report is in the files, and so is what came before it
    3 lines, of the scope that has this report
    """
    program, trace = shutil.which("gpuanalyze"), os.environ.get(_wire.ENV_TRACE)
    if program is None or trace is None:
        raise NoAnswer("this takes gpuanalyze, which is not on PATH" if trace else "this process does not know its trace")
    note = "print_report %d.%d" % (id, next(_moments))
    try:
        ask(id, "acquired", REPORT, note)
    except NoAnswer as e:
        if not e.late:
            raise
    end = time.monotonic() + _PATIENCE
    while True:
        for s in json.loads(_gpuanalyze(program, "contexts", "--json", trace))["scopes"]:
            if any(r.get("subcontext") == note for r in s.get("reports") or ()):
                return _gpuanalyze(program, "lines", "--scope=%d" % s["id"], "--max-depth=%d" % max(max_depth, 0), trace)
        if time.monotonic() > end:
            raise NoAnswer("what was recorded last is not in the trace after %g seconds" % _PATIENCE)
        time.sleep(0.1)


def _gpuanalyze(program: str, answer: str, *arguments: str) -> str:
    """An answer of the trace as far as it has come, which is partial so far."""
    done = subprocess.run([program, answer, "--quiet", *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode not in (0, 3):
        raise NoAnswer("gpuanalyze %s: %s" % (answer, done.stderr.decode("utf-8", "replace").strip()))
    return done.stdout.decode("utf-8", "replace")


def _text(root: _Node) -> str:
    lines = []
    left = [("_root", root, 0)]
    while left:
        name, node, depth = left.pop()
        lines.append("%s%s (%s, %s)\n" % (depth * "  ", name, size(node.used), size(node.acquired)))
        left.extend(("%s:%s:%s" % line, child, depth + 1) for line, child in reversed(list(node.children.items())))
    return "".join(lines)


def size(n: int) -> str:
    """Bytes as CuPy prints them: two decimals, 1 KB is 1,024 bytes."""
    amount: Any = n
    for unit in ("", "K", "M", "G", "T", "P", "E"):
        if amount < 1024:
            return "%.2f%sB" % (amount, unit)
        amount /= 1024.0
    return "%.2fZB" % amount


_classes: Dict[type, type] = {}


def _enter(hook: LineProfileHook) -> None:
    """Registers hook with CuPy in this thread, under a name that no other has, as
    CuPy's registry is keyed by names: once, however often hook is entered here."""
    module = sys.modules.get("cupy.cuda.memory_hook")
    base = getattr(module, "MemoryHook", None)
    if module is None or base is None:
        return
    adapter = module.get_memory_hooks().get(_name(hook))
    if adapter is None:
        cls = _classes.get(base)
        if cls is None:
            cls = _classes[base] = type("GpurecLineProfile", (base,), {"__doc__": "gpurec.LineProfileHook in CuPy's registry."})
        adapter = cls()
        adapter.name, adapter.times = _name(hook), 0
        adapter.malloc_preprocess, adapter.alloc_preprocess = hook.malloc_preprocess, hook.alloc_preprocess
        adapter.__enter__()
    adapter.times += 1


def _leave(hook: LineProfileHook) -> None:
    """Takes hook out of this thread's registry where this is the last of its exits."""
    find = getattr(sys.modules.get("cupy.cuda.memory_hook"), "get_memory_hooks", None)
    adapter = None if find is None else find().get(_name(hook))
    if adapter is not None:
        adapter.times -= 1
        if adapter.times == 0:
            adapter.__exit__()


def _name(hook: LineProfileHook) -> str:
    return "gpurec.LineProfileHook %x" % id(hook)
