"""fastai's memory readers and GPUMemTrace, over the recording instead of a thread
that polls.

The readers are fastai.utils.mem's, on NVML: whole MB of 2^20 bytes, 0 where there
is no device. GPUMemTrace has its methods and prints its very lines, with exact
peaks: the numbers are the recorder's own fold of what this process has published,
so that gpuanalyze contexts finds the same. No thread polls, no cache is flushed,
and while no scope is open nothing is counted.

Outside gpurec run there are only the readings that NVML gives at each call: used
is then the whole device's, peaked is what one of them happened to see, and every
line says so.
"""

import functools
import operator
import os
import sys
import warnings
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple, TypeVar, cast

from gpurec import _hook, _nvml
from gpurec._answer import CURVES, END, ONLY, REPORT, Measure, NoAnswer, ask, b2mb, say

_F = TypeVar("_F", bound=Callable[..., Any])

BY_NVML = "not recorded: NVML's readings of the device, peaked is a lower bound"


class GPUMemory(NamedTuple):
    """A device's memory, of all processes together, in MB."""

    total: int
    free: int
    used: int


class MemData(NamedTuple):
    """What a GPUMemTrace measured: used is left behind, peaked was needed beyond that."""

    used: int
    peaked: int


# ---- readers -----------------------------------------------------------------


def _in_mb(m: Optional[_nvml.Memory]) -> GPUMemory:
    return GPUMemory(0, 0, 0) if m is None else GPUMemory(b2mb(m.total), b2mb(m.free), b2mb(m.used))


def gpu_mem_get(id: Optional[int] = None) -> GPUMemory:
    """total, free and used MB of a device of this process, of the current one
    without an id; zeros where there is no such device."""
    return _in_mb(_nvml.memory(id))


def gpu_mem_get_all() -> List[GPUMemory]:
    """total, free and used MB of each device that this process sees."""
    return [_in_mb(None if h is None else _nvml.read(h)) for h in _nvml.handles()]


def gpu_mem_get_free() -> int:
    """Free MB of the current device."""
    return gpu_mem_get().free


def gpu_mem_get_used() -> int:
    """Used MB of the current device."""
    return gpu_mem_get().used


def gpu_mem_get_free_no_cache() -> int:
    """Free MB of the current device, after PyTorch has given back what it only caches."""
    _empty_cache()
    return gpu_mem_get().free


def gpu_mem_get_used_no_cache() -> int:
    """Used MB of the current device, after PyTorch has given back what it only caches."""
    _empty_cache()
    return gpu_mem_get().used


def gpu_handle(id: Optional[int] = None) -> Any:
    """NVML's handle of a device of this process, None where there is none."""
    return _nvml.handle(id)


def gpu_mem_get_used_fast(handle: Any) -> int:
    """Used MB by NVML's handle, gpu_handle's or pynvml's: no look-up of the device."""
    return _in_mb(_nvml.read(handle)).used


def gpu_with_max_free_mem() -> Tuple[Optional[int], int]:
    """The device with most free memory and its free MB, of equal ones the first;
    (None, 0) where there is none."""
    free = [m.free for m in gpu_mem_get_all()]
    if not free:
        return None, 0
    return free.index(max(free)), max(free)


def preload_pytorch() -> None:
    """Let PyTorch make its CUDA context now, so that its hundreds of MB are in no
    measurement; does nothing where it has no CUDA. The only function here that
    imports it."""
    import torch

    if torch.cuda.is_available():
        torch.ones((1, 1)).cuda()


def _empty_cache() -> None:
    torch = sys.modules.get("torch")
    try:
        if torch is not None and torch.cuda.is_initialized():
            torch.cuda.empty_cache()
    except AttributeError:
        pass  # still being imported


# ---- GPUMemTrace ---------------------------------------------------------------


class _Silent:
    """mtrace.silent: true or false, and callable as fastai documents it."""

    def __init__(self, trace: "GPUMemTrace", on: bool) -> None:
        self._trace, self._on = trace, on

    def __call__(self, silent: bool = True) -> None:
        self._trace.silent = silent

    def __bool__(self) -> bool:
        return self._on

    def __repr__(self) -> str:
        return repr(self._on)

    def __eq__(self, other: object) -> bool:
        return self._on == other

    __hash__ = None  # type: ignore[assignment]


class _Recorded:
    """A measurement by the recorder. It is of the process that begins it."""

    note = ""

    def __init__(self, ctx: Optional[str], curve: str, device: int) -> None:
        name = None if ctx is None else _hook.text(ctx)
        self.curve, self.pid = curve, os.getpid()
        self.number = _hook.scope_begin_on(name, None, device)

    def ours(self) -> bool:
        return self.pid == os.getpid()

    def reset(self) -> None:
        if self.ours():
            _hook.scope_reset(self.number)

    def measure(self, how: int = ONLY, subctx: Optional[str] = None) -> Measure:
        if not self.ours():
            raise NoAnswer("the scope was begun in another process")
        return ask(self.number, self.curve, how, subctx)

    def end(self) -> None:
        if self.ours():
            _hook.scope_end(self.number)

    def report(self, subctx: Optional[str]) -> None:
        """Puts a report of frozen numbers into the trace."""
        if self.ours():
            _hook.scope_report(self.number, None if subctx is None else _hook.text(subctx))


class _Read:
    """A measurement by NVML's readings at each call."""

    note = BY_NVML

    def __init__(self, device: Optional[int]) -> None:
        self.device = _nvml.current() if device is None else device
        self.begin = self.max = self.used()

    def used(self) -> int:
        m = _nvml.memory(self.device)
        return 0 if m is None else m.used

    def reset(self) -> None:
        self.begin = self.max = self.used()

    def measure(self, how: int = ONLY, subctx: Optional[str] = None) -> Measure:
        now = self.used()
        self.max = max(self.max, now)
        return Measure(self.begin, now, self.max)

    def end(self) -> None:
        pass

    def report(self, subctx: Optional[str]) -> None:
        pass


class GPUMemTrace:
    """What a block of code uses of GPU memory, and peaks at beyond that.

        with GPUMemTrace(ctx="forward"):
            ...
        # △Used Peaked MB:    100    150 (forward: exit)

    It starts at once; start() on a running one, as at the begin of a with block,
    begins anew. Any number of them nest and overlap, on any threads, each with its
    own exact peak; one object is for one thread or task at a time. A scope ends
    with stop(), with its block, or with the object. A copy, and what comes out of a
    pickle, measures on where that is possible, and ends nothing when it goes.

    curve is what is measured: used (bytes that the pool handed out), acquired
    (taken from the driver) or nvml (the device's, fastai's own; device chooses
    which, without it the current one). The first two are the process's, over all
    devices.
    """

    def __init__(
        self,
        silent: bool = False,
        ctx: Optional[str] = None,
        on_exit_report: bool = True,
        *,
        curve: str = "used",
        device: Optional[int] = None,
    ) -> None:
        self._running = self._ends = False
        if curve not in CURVES:
            raise ValueError("curve %r is none of %s" % (curve, ", ".join(CURVES)))
        self.ctx, self.on_exit_report = ctx, on_exit_report
        self.curve, self.device = curve, None if device is None else operator.index(device)
        self._silent = bool(silent)
        self._scope: Any = None
        self._frozen: Optional[Measure] = None
        self.start()

    @property
    def silent(self) -> Any:
        """Whether reports print nothing, and measure nothing: mtrace.silent(),
        mtrace.silent(False), or an assignment."""
        return _Silent(self, self._silent)

    @silent.setter
    def silent(self, silent: bool) -> None:
        self._silent = bool(silent)

    def start(self) -> None:
        """Begin to measure; where it runs already, begin anew."""
        if self._running and (not isinstance(self._scope, _Recorded) or self._scope.ours()):
            self.reset()
            return
        if _hook.active():
            self._scope = _Recorded(self.ctx, self.curve, self._on())
        else:
            self._scope = _Read(self.device)
        self._running, self._ends, self._frozen = True, True, None

    def _on(self) -> int:
        if self.device is not None:
            return self.device
        return _nvml.current() if self.curve == "nvml" else -1

    def reset(self) -> None:
        """Begin anew: used and peaked are counted from here. A stopped one keeps
        what it has."""
        if self._running:
            self._scope.reset()

    def stop(self) -> None:
        """End the measurement and freeze its data, whatever happens later."""
        if not self._running:
            return
        self._running = False
        try:
            self._frozen = self._scope.measure(END)
        except NoAnswer:
            pass  # it has ended all the same, and data() asks again

    def measure(self) -> Measure:
        """begin, end and max in bytes, up to now or as stop() froze them. Waits for
        the recorder, milliseconds, at most 100; then it raises NoAnswer."""
        if self._frozen is not None:
            return self._frozen
        m: Measure = self._scope.measure()
        if not self._running:
            self._frozen = m
        return m

    def data_bytes(self) -> MemData:
        """(used, peaked) in exact bytes; raises NoAnswer as measure() does."""
        m = self.measure()
        self._warn()
        return MemData(m.used, m.peaked)

    def data(self) -> MemData:
        """(used, peaked) in fastai's MB: begin, end and peak are each cut to whole
        MB before they are subtracted. Raises NoAnswer as measure() does."""
        m = self.measure().mb()
        self._warn()
        return MemData(m.used, m.peaked)

    def _warn(self) -> None:
        if self._scope.note:
            warnings.warn("GPUMemTrace: " + self._scope.note, stacklevel=3)

    def __enter__(self) -> "GPUMemTrace":
        self.start()
        return self

    def __exit__(self, *exception: Any) -> None:
        try:
            if self.on_exit_report:
                self.report("exit")  # before the end: it belongs to a scope that is open
        finally:
            self.stop()

    def __del__(self) -> None:
        try:
            if self._running and self._ends:
                self._scope.end()
        except Exception:  # the interpreter is ending
            pass

    def __getstate__(self) -> Dict[str, Any]:
        return dict(self.__dict__, _ends=False)

    def _id(self) -> int:
        """As of gpurec.scope, for gpurec.measure."""
        return self._scope.number if isinstance(self._scope, _Recorded) and self._scope.ours() else 0

    def __repr__(self) -> str:
        return self._line(self._try(ONLY, None), "")

    def report(self, subctx: Optional[str] = None) -> None:
        """Print used and peaked so far, beside ctx and this sub-context. Never
        raises on behalf of the recording: what is not known is said."""
        if self._silent:
            return
        subctx = None if subctx is None else str(subctx)
        if self._frozen is None:
            found = self._try(REPORT if self._running else ONLY, subctx)
        else:
            found = self._frozen
        if not self._running:
            self._scope.report(subctx)
        say(self._line(found, self._context(subctx)) + "\n")

    def report_n_reset(self, subctx: Optional[str] = None) -> None:
        """report(), then reset(): also when silent."""
        self.report(subctx)
        self.reset()

    def _try(self, how: int, subctx: Optional[str]) -> Any:
        """A Measure, or why there is none."""
        try:
            return self.measure() if how == ONLY else self._scope.measure(how, subctx)
        except NoAnswer as e:
            return e

    def _line(self, found: Any, context: str) -> str:
        if isinstance(found, NoAnswer):
            return "△Used Peaked MB: unknown%s [%s]" % (context, found)
        m, notes = found.mb(), [self._scope.note] if self._scope.note else []
        if found.lost:
            notes.append("partial: %d events are missing" % found.lost)
        return "△Used Peaked MB: {:6,d} {:6,d}{}{}".format(m.used, m.peaked, context, "".join(" [%s]" % n for n in notes))

    def _context(self, subctx: Optional[str]) -> str:
        parts = [str(p) for p in (self.ctx, subctx) if p is not None]
        return " (%s)" % ": ".join(parts) if parts else ""


def gpu_mem_trace(function: _F) -> _F:
    """A decorator: each call in a GPUMemTrace that reports at its end under the
    function's qualified name. A coroutine function is measured from start to end, of
    a generator function only the creation. It goes below staticmethod and classmethod."""
    name = getattr(function, "__qualname__", None) or getattr(function, "__name__", None) or type(function).__qualname__
    call: Any
    if getattr(getattr(function, "__code__", None), "co_flags", 0) & 0x0080:  # inspect.CO_COROUTINE

        async def call(*args: Any, **kwargs: Any) -> Any:
            with GPUMemTrace(ctx=name, on_exit_report=True):
                return await function(*args, **kwargs)

    else:

        def call(*args: Any, **kwargs: Any) -> Any:
            with GPUMemTrace(ctx=name, on_exit_report=True):
                return function(*args, **kwargs)

    return cast(_F, functools.wraps(function)(call))
