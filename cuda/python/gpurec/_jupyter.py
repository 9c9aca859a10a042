"""``%load_ext gpurec``: %%gpumem and %gpumem, in Jupyter and IPython.

A cell that begins with %%gpumem runs as it would without that line: it is no
function of ours that runs it. So its last value is shown, await works at its top
level, its exceptions, its tracebacks and the stacks in the recording have no
frame of ours, and lines keep their numbers. The line is blanked before the cell
is compiled, and IPython's own events before and after a cell are where the
measure begins and ends.
"""

import re
import threading
import time
from typing import Any, List, Optional, Tuple
from weakref import WeakKeyDictionary

import gpurec

_LINE = re.compile(r"%%gpumem(?:[ \t]+(.*))?$")
_USAGE = "%%gpumem goes on the first line of its cell; %%time and the like come below it"
_SHOWN = 40  # characters of a statement that name its scope
_TRIES = 20  # to ask the recorder, 100 ms each: a person waits for the number, no program does
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


class _Measure:
    """A scope, and how long it took. Outside a recording, NVML's readings of the
    current device at both ends."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.recorded = gpurec.active()
        self.trace = gpurec.GPUMemTrace(silent=True, ctx=name, on_exit_report=False)
        self.begin = time.perf_counter()

    def end(self) -> str:
        """End it, and say what it was."""
        took = time.perf_counter() - self.begin
        self.trace.stop()
        return "gpumem %s: %s, %.3f s" % (self.name, self.memory(), took)

    def memory(self) -> str:
        for _ in range(_TRIES):
            try:
                m = self.trace.measure()
                break
            except gpurec.NoAnswer as e:
                why = str(e)
                if not e.late:
                    return "used and peaked unknown (%s)" % why
        else:
            return "used and peaked unknown (%s, asked %d times)" % (why, _TRIES)
        if self.recorded:
            lost = " (partial: %d events are missing)" % m.lost if m.lost else ""
            return "used %s, peaked %s%s" % (_bytes(m.used), _bytes(m.peaked), lost)
        if m.end == 0:
            return "NVML knows of no device"
        return "used %s by NVML, of all processes" % _bytes(m.used)


def _bytes(n: int) -> str:
    """As gpuanalyze writes them (format.Bytes), and exactly."""
    amount, unit = float(n), 0
    while abs(amount) >= 1023.995 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    return "%.2f %s (%d)" % (amount, _UNITS[unit], n) if unit else "%d B" % n


class _Extension:
    """What one shell has of ours."""

    def __init__(self, shell: Any) -> None:
        self.shell = shell
        # .cells that this thread runs, the inner one last; .number of the next
        self.running = threading.local()

    def cells(self) -> List[Tuple[Any, Optional[_Measure]]]:
        found: List[Tuple[Any, Optional[_Measure]]] = self.running.__dict__.setdefault("cells", [])
        return found

    def before(self, info: Any) -> None:
        """IPython is about to run a cell."""
        cells, measure = self.cells(), None
        match = _LINE.match((info.raw_cell.lstrip().splitlines() or [""])[0].rstrip())
        if match and not cells:
            # IPython 9 counts on before this event, older ones after the cell.
            number = getattr(self.running, "number", self.shell.execution_count)
            measure = _Measure((match.group(1) or "").strip() or "In[%d]" % number)
        cells.append((info, measure))

    def after(self, result: Any = None) -> None:
        """IPython has run a cell: that one, or none where it was cancelled. An
        empty one was never announced."""
        cells = self.cells()
        if not cells:
            return
        info = getattr(result, "info", None)
        # What failed in IPython's own machinery comes with another info.
        if result is not None and info is not cells[-1][0] and getattr(info, "raw_cell", None) != cells[-1][0].raw_cell:
            return
        measure = cells.pop()[1]
        if measure is not None:
            print(measure.end(), flush=True)

    def blank(self, lines: List[str]) -> List[str]:
        """The cell without our line. In a cell that runs already, as below
        %%time, it stays and becomes a call of magic, which refuses."""
        if not lines or self.cells() or not _LINE.match(lines[0].rstrip()):
            return lines
        self.running.number = self.shell.execution_count
        below = lines[1:]
        while below and not below[0].strip():
            below = below[1:]
        # Another magic must come first; a blank line keeps the numbers of the others.
        return below if below and below[0].startswith("%%") else ["\n"] + lines[1:]

    # IPython asks all others whether a cell is complete, and must see our line for that.
    blank.has_side_effects = True  # type: ignore[attr-defined]

    def magic(self, line: str, cell: Optional[str] = None, local_ns: Any = None) -> Any:
        """%%gpumem [NAME] prints what the cell below used, peaked at, and took in
        time; NAME is its scope's in the recording, In[N] without one.
        %gpumem STATEMENT does the same for one statement, and has its value."""
        if cell is not None or not line:
            from IPython.core.error import UsageError

            raise UsageError(_USAGE if cell is not None else "%gpumem STATEMENT, or %%gpumem [NAME] above a cell")
        __tracebackhide__ = True
        source = self.shell.transform_cell(line)
        measure = _Measure(line if len(line) <= _SHOWN else line[: _SHOWN - 1] + "…")
        try:
            try:
                code = compile(source, "<gpumem>", "eval")
            except SyntaxError:
                exec(compile(source, "<gpumem>", "exec"), self.shell.user_ns, local_ns)
                return None
            return eval(code, self.shell.user_ns, local_ns)
        finally:
            print(measure.end(), flush=True)


_loaded: "WeakKeyDictionary[Any, _Extension]" = WeakKeyDictionary()


def load(shell: Any) -> None:
    """Give shell the magics."""
    unload(shell)
    extension = _loaded[shell] = _Extension(shell)

    def gpumem(line: str, cell: Optional[str] = None, local_ns: Any = None) -> Any:
        __tracebackhide__ = True  # to IPython, which leaves such frames out
        return extension.magic(line, cell, local_ns)

    gpumem.__doc__ = _Extension.magic.__doc__
    gpumem.needs_local_scope = True  # type: ignore[attr-defined]
    shell.register_magic_function(gpumem, "line_cell", "gpumem")
    shell.input_transformers_cleanup.append(extension.blank)
    shell.events.register("pre_run_cell", extension.before)
    shell.events.register("post_run_cell", extension.after)
    if not gpurec.active():
        print("gpurec: not recorded, so %%gpumem says what NVML knows; gpurec run -- jupyter lab would record")


def unload(shell: Any) -> None:
    """Take them away again."""
    extension = _loaded.pop(shell, None)
    if extension is None:
        return
    shell.input_transformers_cleanup.remove(extension.blank)
    shell.events.unregister("pre_run_cell", extension.before)
    shell.events.unregister("post_run_cell", extension.after)
    for kind in ("line", "cell"):
        shell.magics_manager.magics[kind].pop("gpumem", None)
