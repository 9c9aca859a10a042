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
peaked at. Afterwards, on any machine, a trace is tables:

    trace = gpurec.open("train.gpurec")
    trace.to_pandas("contexts")     # also events, lines, devices, samples; to_polars

Outside a recording everything here is a no-op and nothing is
loaded. Nothing here allocates GPU memory, prints, or raises on behalf of the
recording.
"""

import os
from typing import Any, Callable, List, Optional, TypeVar

from gpurec import _hook, _version, _wire
from gpurec._version import __version__ as __version__

__all__ = ["LineProfileHook", "active", "mark", "scope"]  # not open: a star would hide the builtin

_F = TypeVar("_F", bound=Callable[..., Any])

_CO_COROUTINE = 0x0080  # inspect.CO_COROUTINE, without importing inspect


def active() -> bool:
    """Whether this process is being recorded."""
    return bool(_hook.active())


def mark(text: str) -> None:
    """Put a text into the recording at this moment."""
    _hook.mark(_hook.text(text))


if active():
    _version.tell(mark, bool(os.environ.get(_wire.ENV_VERBOSE)))


def open(trace: str, gpuanalyze: Optional[str] = None) -> Any:
    """A recorded trace as tables of pyarrow, pandas or polars: a
    ``gpurec._trace.Trace``. gpuanalyze is where that program lies, if not on
    PATH; only lines and contexts take it."""
    from gpurec._trace import Trace

    return Trace(trace, gpuanalyze)


class scope:
    """A measured block with a name: a context manager and a decorator.

    The peak and the change of used bytes between entry and exit are this
    scope's own, whatever other scopes are open. An object may be entered again,
    also while it is open (the exit ends the entry made last); each thread
    should have its own object. As a decorator it measures each call, from any
    number of threads, and a coroutine function from start to end; of a
    generator function it measures only the creation.
    """

    __slots__ = ("_domain", "_name", "_open", "name")

    def __init__(self, name: str, domain: Optional[str] = None) -> None:
        self.name = name
        self._name = _hook.text(name)
        self._domain = None if domain is None else _hook.text(domain)
        self._open: List[int] = []

    def __enter__(self) -> "scope":
        self._open.append(_hook.scope_begin(self._name, self._domain))
        return self

    def __exit__(self, *exception: Any) -> None:
        if self._open:
            _hook.scope_end(self._open.pop())

    def reset(self) -> None:
        """Begin anew: used and peaked are counted from this moment."""
        if self._open:
            _hook.scope_reset(self._open[-1])

    def report(self, subcontext: Optional[str] = None) -> None:
        """Mark a moment at which the reports show used and peaked so far,
        under this sub-context."""
        if self._open:
            _hook.scope_report(self._open[-1], None if subcontext is None else _hook.text(subcontext))

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
                    _hook.scope_end(id)

        else:

            def call(*args: Any, **kwargs: Any) -> Any:
                id = _hook.scope_begin(name, domain)
                try:
                    return function(*args, **kwargs)
                finally:
                    _hook.scope_end(id)

        for attribute in ("__module__", "__name__", "__qualname__", "__doc__", "__annotations__"):
            try:
                setattr(call, attribute, getattr(function, attribute))
            except AttributeError:
                pass  # callables without it, such as functools.partial
        call.__dict__.update(getattr(function, "__dict__", {}))
        call.__wrapped__ = function
        return call


class LineProfileHook(scope):
    """A stretch of which ``gpuanalyze lines --scope`` prints what CuPy's hook
    of this name would have: its pool's use, line by line.

    A stretch belongs to the thread that enters it, as CuPy's does. It leaves
    no trace in CuPy's registry of hooks, so CuPy's own LineProfileHook may be
    active at the same time. Give name to tell stretches apart.
    """

    __slots__ = ("max_depth",)

    def __init__(self, max_depth: int = 0, *, name: str = "LineProfileHook") -> None:
        super().__init__(name, "cupy")
        self.max_depth = max_depth
