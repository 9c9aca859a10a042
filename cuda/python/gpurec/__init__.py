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
from typing import TYPE_CHECKING, Any, Callable, List, Optional, Tuple, TypeVar

from _thread import get_ident

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


class scope:
    """A measured block with a name: a context manager and a decorator.

    The peak and the change of used bytes between entry and exit are this
    scope's own, whatever other scopes are open. An object may be entered again,
    also while it is open, and on several threads (an exit ends the entry that its
    thread made last). As a decorator it measures each call, from any
    number of threads, and a coroutine function from start to end; of a
    generator function it measures only the creation.
    """

    __slots__ = ("_domain", "_last", "_name", "_open", "name")

    def __init__(self, name: str, domain: Optional[str] = None) -> None:
        self.name = name
        self._name = _hook.text(name)
        self._domain = None if domain is None else _hook.text(domain)
        self._open: List[Tuple[int, int]] = []  # thread, id
        self._last = 0  # id of what ended last

    def __enter__(self) -> "scope":
        self._open.append((get_ident(), _hook.scope_begin(self._name, self._domain)))
        return self

    def __exit__(self, *exception: Any) -> None:
        entries, me = self._open, get_ident()
        for i in range(len(entries) - 1, -1, -1):
            if entries[i][0] == me:
                break
        else:
            i = len(entries) - 1  # another thread's, as an ExitStack may be closed anywhere
        if i >= 0:
            self._last = entries.pop(i)[1]
            _hook.scope_end(self._last)

    def _id(self) -> int:
        """Of the entry that this thread made last, of any thread's, or of what
        ended last; 0: never entered, or not in a recording."""
        me = get_ident()
        for thread, id in reversed(self._open):
            if thread == me:
                return id
        return self._open[-1][1] if self._open else self._last

    def reset(self) -> None:
        """Begin anew: used and peaked are counted from this moment."""
        if self._open:
            _hook.scope_reset(self._id())

    def report(self, subcontext: Optional[str] = None) -> None:
        """Mark a moment at which the reports show used and peaked so far,
        under this sub-context."""
        if self._open:
            _hook.scope_report(self._id(), None if subcontext is None else _hook.text(subcontext))

    def __call__(self, function: _F) -> _F:
        name, domain = self._name, self._domain
        call: Any
        # The id stays in the call, so that recursion and threads don't mix.
        if getattr(getattr(function, "__code__", None), "co_flags", 0) & _CO_COROUTINE:

            async def call(*args: Any, **kwargs: Any) -> Any:
                id = _hook.scope_begin(name, domain)
                try:
                    return await function(*args, **kwargs)
                finally:
                    self._last = id
                    _hook.scope_end(id)

        else:

            def call(*args: Any, **kwargs: Any) -> Any:
                id = _hook.scope_begin(name, domain)
                try:
                    return function(*args, **kwargs)
                finally:
                    self._last = id
                    _hook.scope_end(id)

        for attribute in ("__module__", "__name__", "__qualname__", "__doc__", "__annotations__"):
            try:
                setattr(call, attribute, getattr(function, attribute))
            except AttributeError:
                pass  # callables without it, such as functools.partial
        call.__dict__.update(getattr(function, "__dict__", {}))
        call.__wrapped__ = function
        return call


def measure(of: scope, curve: str = "used") -> "Measure":
    """begin, end and max in bytes of a scope on a curve (used, acquired or nvml):
    of the entry that this thread made last, or of what ended last. Exact, but for
    nvml's, and what gpuanalyze contexts says of it. Waits for the recorder,
    milliseconds, at most 100; then, and outside a recording, it raises NoAnswer."""
    from gpurec import _answer

    if curve not in _answer.CURVES:
        raise ValueError("curve %r is none of %s" % (curve, ", ".join(_answer.CURVES)))
    return _answer.ask(of._id(), curve)


def max_memory(of: scope, curve: str = "used") -> int:
    """The exact peak in bytes of a scope, open or ended: the most of used bytes
    while it was open, both ends included. What torch.cuda.max_memory_allocated
    says after a reset at the scope's begin, for any number of scopes at once and
    without one; it waits and raises as measure does. Outside a recording it warns
    and returns what NVML reads of the current device now."""
    if active():
        return measure(of, curve).max
    import warnings

    from gpurec import _nvml

    warnings.warn("max_memory: not under gpurec run, this is NVML's used bytes of the device now, no peak", stacklevel=2)
    now = _nvml.memory()
    return 0 if now is None else now.used
