"""The hook's C API, seen from Python.

Promises: importing this costs nothing outside a recording (ctypes stays
unloaded), and where the hook or one of its functions is absent every function
here is a no-op. Functions are called through PyDLL: CDLL would release the
interpreter's lock around calls that take less time than getting it back. The one
that waits for the recorder is CDLL's, so that other threads run meanwhile.
"""

import os
from typing import Any, Optional

from gpurec import _wire

_SIGNATURES = {
    # name: (result, arguments), as letters: i int32, q int64, Q uint64, s text, p pointer, O object
    "gpurec_active": ("i", ""),
    "gpurec_scope_begin": ("Q", "ss"),
    "gpurec_scope_begin_on": ("Q", "ssi"),
    "gpurec_scope_ask": ("i", "Qisp"),
    "gpurec_scope_end": ("", "Q"),
    "gpurec_scope_reset": ("", "Q"),
    "gpurec_scope_report": ("", "Qs"),
    "gpurec_mark": ("", "s"),
    "gpurec_cupy_methods": ("i", "O"),
    "gpurec_cupy_every_thread": ("i", "OOO"),
}


_WAITS = ("gpurec_scope_ask",)


def load() -> Optional[Any]:
    """The hook as a ctypes library: the one in this process, or the one that
    GPUREC_HOOK names; None outside a recording."""
    if not os.environ.get(_wire.ENV_SOCKET):
        return None
    try:
        import ctypes

        path = None
        library = ctypes.PyDLL(path)
        if not hasattr(library, "gpurec_active"):
            path = os.environ.get(_wire.ENV_HOOK)
            if not path:
                return None
            library = ctypes.PyDLL(path)
        waiting = ctypes.CDLL(path)
        types = {
            "": None,
            "i": ctypes.c_int32,
            "q": ctypes.c_int64,
            "Q": ctypes.c_uint64,
            "s": ctypes.c_char_p,
            "p": ctypes.c_void_p,
            "O": ctypes.py_object,
        }
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(waiting if name in _WAITS else library, name)
            function.restype = types[result]
            function.argtypes = [types[a] for a in arguments]
            setattr(library, name, function)
        return library
    except (ImportError, OSError, AttributeError):
        return None  # no ctypes, no such file, a hook of another version


def _none_active(*arguments: Any) -> int:
    return 0


def _none_begin(name: Optional[bytes], domain: Optional[bytes], device: int = -1) -> int:
    return 0


def _none_ask(*arguments: Any) -> int:
    return 1  # GPUREC_NOT_RECORDED


def _none(*arguments: Any) -> None:
    return None


library = load()
if library is None:
    active = cupy_methods = cupy_every_thread = _none_active
    scope_begin = scope_begin_on = _none_begin
    scope_ask = _none_ask
    scope_end = scope_reset = scope_report = mark = _none
else:
    active = library.gpurec_active
    scope_begin = library.gpurec_scope_begin
    scope_begin_on = library.gpurec_scope_begin_on
    scope_ask = library.gpurec_scope_ask
    scope_end = library.gpurec_scope_end
    scope_reset = library.gpurec_scope_reset
    scope_report = library.gpurec_scope_report
    mark = library.gpurec_mark
    cupy_methods = library.gpurec_cupy_methods
    cupy_every_thread = library.gpurec_cupy_every_thread


def text(s: object) -> bytes:
    """s as the hook takes it, whatever it is: an odd name is no reason to end the
    program. What UTF-8 and C's texts cannot hold (lone surrogates, zeros) becomes a
    question mark."""
    return str(s).encode("utf-8", "replace").replace(b"\0", b"?")
