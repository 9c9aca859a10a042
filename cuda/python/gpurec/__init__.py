"""Names for a recording of GPU memory, from inside the program.

``gpurec run -- python train.py`` records without a change to the program.
What a program may add is words: scopes and marks.

    import gpurec

    with gpurec.scope("evaluation"):
        evaluate()

    @gpurec.scope("load")
    def load(batch): ...

    gpurec.mark("weights loaded")

Scopes nest and overlap freely; ``gpuanalyze contexts`` says what each used and
peaked at, and the program itself can ask meanwhile:

    gpurec.max_memory(scope)                  # exact bytes, of an open scope or an ended one
    with gpurec.GPUMemTrace(ctx="step"): ...  # prints fastai's line at its end

Afterwards, on any machine, a trace is tables:

    trace = gpurec.open("train.gpurec")
    trace.to_pandas("contexts")     # also events, lines, devices, samples; to_polars

Outside a recording scopes and marks are no-ops and load nothing; what reads memory
says what NVML knows. Nothing here allocates GPU memory (but for preload_pytorch).
Only what returns a number that gpurec cannot give raises, NoAnswer.
"""

import os
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Callable, List, Optional, TypeVar, Union, cast

from gpurec import _hook, _version, _wire
from gpurec._version import __version__ as __version__

if TYPE_CHECKING:
    from gpurec._answer import Measure, NoAnswer, b2mb
    from gpurec._lines import LineProfileHook
    from gpurec._mem import (
        GPUMemory,
        GPUMemTrace,
        MemData,
        gpu_handle,
        gpu_mem_get,
        gpu_mem_get_all,
        gpu_mem_get_free,
        gpu_mem_get_free_no_cache,
        gpu_mem_get_used,
        gpu_mem_get_used_fast,
        gpu_mem_get_used_no_cache,
        gpu_mem_trace,
        gpu_with_max_free_mem,
        preload_pytorch,
    )

__all__ = [  # not open: a star would hide the builtin
    "GPUMemTrace",
    "GPUMemory",
    "LineProfileHook",
    "Measure",
    "MemData",
    "NoAnswer",
    "active",
    "b2mb",
    "gpu_handle",
    "gpu_mem_get",
    "gpu_mem_get_all",
    "gpu_mem_get_free",
    "gpu_mem_get_free_no_cache",
    "gpu_mem_get_used",
    "gpu_mem_get_used_fast",
    "gpu_mem_get_used_no_cache",
    "gpu_mem_trace",
    "gpu_with_max_free_mem",
    "mark",
    "max_memory",
    "measure",
    "preload_pytorch",
    "scope",
]

# Where the rest is: loaded when first asked for, as it takes ctypes.
_LATER = {name: "_mem" for name in __all__}
_LATER.update(LineProfileHook="_lines", Measure="_answer", NoAnswer="_answer", b2mb="_answer")

_F = TypeVar("_F", bound=Callable[..., Any])
_S = TypeVar("_S", bound="scope")

_CO_COROUTINE = 0x0080  # inspect.CO_COROUTINE, without importing inspect


def active() -> bool:
    """Whether this process is being recorded."""
    return bool(_hook.active())


def mark(text: str) -> None:
    """Put a text into the recording at this moment."""
    _hook.mark(_hook.text(text))


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError("module %r has no attribute %r" % (__name__, name))
    import importlib

    found = getattr(importlib.import_module("gpurec." + _LATER[name]), name)
    globals()[name] = found
    return found


def __dir__() -> List[str]:
    return sorted(set(globals()) | set(__all__))


if active():
    _version.tell(mark, bool(os.environ.get(_wire.ENV_VERBOSE)))


def open(trace: str, gpuanalyze: Optional[str] = None) -> Any:
    """A recorded trace as tables of pyarrow, pandas or polars: a
    ``gpurec._trace.Trace``. gpuanalyze is where that program lies, if not on
    PATH; only lines and contexts take it."""
    from gpurec._trace import Trace

    return Trace(trace, gpuanalyze)


def load_ipython_extension(shell: Any) -> None:
    """``%load_ext gpurec`` in Jupyter and IPython: ``%%gpumem`` above a cell
    prints what it used, peaked at, and took in time."""
    from gpurec import _jupyter

    _jupyter.load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """``%unload_ext gpurec``."""
    from gpurec import _jupyter

    _jupyter.unload(shell)


class _Entry:
    """One entry of a scope: of is None once it has ended, before what the same
    thread or task had entered and not left."""

    __slots__ = ("before", "id", "of")

    def __init__(self, id: int, of: "scope", before: "Optional[_Entry]") -> None:
        self.id, self.before = id, before
        self.of: Optional[scope] = of


# A thread, an asyncio task and a greenlet have each a context of their own, so that
# an object which several of them enter knows whose entry an exit means.
_entered: "ContextVar[Optional[_Entry]]" = ContextVar("gpurec.scope", default=None)


def _newest() -> Optional[_Entry]:
    """The newest entry here that is open. What was ended elsewhere is let go of."""
    entry = _entered.get()
    while entry is not None and entry.of is None:
        entry = entry.before
    if entry is not None:
        while entry.before is not None and entry.before.of is None:
            entry.before = entry.before.before
    return entry


class scope:
    """A measured block with a name: a context manager and a decorator.

    The peak and the change of used bytes between entry and exit are this
    scope's own, whatever other scopes are open. An object may be entered again,
    also while it is open, and by several threads, asyncio tasks or greenlets: an exit
    ends the entry that its own made last. Generators that take turns need an object
    each. As a decorator it measures each call, from any number of threads, and a
    coroutine function from start to end; of a generator function it measures only
    the creation. A copy, or what comes out of a pickle, has not been entered.
    """

    __slots__ = ("_domain", "_last", "_name", "_open", "name")

    def __init__(self, name: str, domain: Optional[str] = None) -> None:
        self.name = name
        self._name = _hook.text(name)
        self._domain = None if domain is None else _hook.text(domain)
        self._open: List[_Entry] = []
        self._last = 0  # id of what ended last

    def _begin(self) -> int:
        return int(_hook.scope_begin(self._name, self._domain))

    def _end(self, id: int) -> None:
        if id:
            self._last = id
            _hook.scope_end(id)

    def __enter__(self: _S) -> _S:
        self._enter()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._leave(self._entry())

    def _enter(self) -> Optional[_Entry]:
        """None where nothing is recorded."""
        id = self._begin()
        if not id:
            return None
        entry = _Entry(id, self, _newest())
        self._open.append(entry)
        _entered.set(entry)
        return entry

    def _leave(self, entry: Optional[_Entry]) -> None:
        if entry is None:
            self._end(0)
            return
        entry.of = None
        try:
            self._open.remove(entry)
        except ValueError:
            pass  # another thread was faster
        _entered.set(_newest())
        self._end(entry.id)

    def _entry(self) -> Optional[_Entry]:
        """The open entry that is meant here: this thread's or task's newest, else
        anybody's, as an ExitStack may be closed anywhere."""
        entry = _entered.get() if len(self._open) > 1 else None
        while entry is not None and entry.of is not self:
            entry = entry.before
        return entry or next(reversed(self._open), None)

    def _id(self) -> int:
        """Of the entry that is meant here, or of what ended last; 0: never entered,
        or not in a recording."""
        entry = self._entry()
        return self._last if entry is None else entry.id

    def reset(self) -> None:
        """Begin anew: used and peaked are counted from this moment."""
        if self._open:
            _hook.scope_reset(self._id())

    def report(self, subcontext: Optional[str] = None) -> None:
        """Mark a moment at which the reports show used and peaked so far,
        under this sub-context."""
        if self._open:
            _hook.scope_report(self._id(), None if subcontext is None else _hook.text(subcontext))

    def __getstate__(self) -> Any:
        names = [n for c in type(self).__mro__ for n in c.__dict__.get("__slots__", ())]
        slots = {n: getattr(self, n) for n in names if hasattr(self, n)}
        slots.update(_open=[], _last=0)
        return getattr(self, "__dict__", None), slots

    def __call__(self, function: _F) -> _F:
        call: Any
        # The entry stays in the call, so that recursion and threads don't mix.
        if getattr(getattr(function, "__code__", None), "co_flags", 0) & _CO_COROUTINE:

            async def call(*args: Any, **kwargs: Any) -> Any:
                entry = self._enter()
                try:
                    return await function(*args, **kwargs)
                finally:
                    self._leave(entry)

        else:

            def call(*args: Any, **kwargs: Any) -> Any:
                entry = self._enter()
                try:
                    return function(*args, **kwargs)
                finally:
                    self._leave(entry)

        for attribute in ("__module__", "__name__", "__qualname__", "__doc__", "__annotations__"):
            try:
                setattr(call, attribute, getattr(function, attribute))
            except AttributeError:
                pass  # callables without it, such as functools.partial
        call.__dict__.update(getattr(function, "__dict__", {}))
        call.__wrapped__ = function
        return cast(_F, call)


def measure(of: "Union[scope, GPUMemTrace]", curve: str = "used") -> "Measure":
    """begin, end and max in bytes of a scope on a curve (used, acquired or nvml): of
    the entry that this thread or task made last, or of what ended last. Exact, but
    for nvml's, and what gpuanalyze contexts says of it. Waits for the recorder,
    milliseconds, at most 100; then, and outside a recording, it raises NoAnswer."""
    from gpurec import _answer

    if curve not in _answer.CURVES:
        raise ValueError("curve %r is none of %s" % (curve, ", ".join(_answer.CURVES)))
    if not hasattr(of, "_id"):
        raise TypeError("%r is no scope: measure and max_memory take a gpurec.scope or a GPUMemTrace" % (of,))
    return _answer.ask(of._id(), curve)


def max_memory(of: "Union[scope, GPUMemTrace]", curve: str = "used") -> int:
    """The exact peak in bytes of a scope, open or ended: the most of used bytes
    while it was open, both ends included. What torch.cuda.max_memory_allocated
    says after a reset at the scope's begin, for any number of scopes at once and
    without one; it waits and raises as measure does. Where this process is not
    recorded it warns and returns what NVML reads of the current device now, 0 where
    it reads none."""
    if active():
        return measure(of, curve).max
    import warnings

    from gpurec import _nvml

    now = _nvml.memory()
    if now is None:
        warnings.warn("max_memory: not recorded, and there is no NVML or no device to ask: 0 is no measurement", stacklevel=2)
        return 0
    warnings.warn("max_memory: not recorded, this is NVML's used bytes of the device now, no peak", stacklevel=2)
    return now.used
