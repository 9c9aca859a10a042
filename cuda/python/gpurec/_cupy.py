"""CuPy's pool, through CuPy's own MemoryHook.

A CuPy hook is registered per thread, so install registers one in the thread
that imports CuPy and in each that starts afterwards, and has the hook register it
in those that ran before, when they come to use CuPy's pool (cuda/hook/cupy.c).
The last cannot be done in a CuPy whose tables are of another kind, or whose pool
has read them already, because a finder in front of ours found module memory_hook.

The callbacks are C functions of the hook, put into the class as they are, so
no Python code of ours runs inside an allocation: no frame to hide from the
stacks, and no moment at which a pending Ctrl-C could be raised in the middle of
a free, where CuPy would swallow it and keep the block. The hook makes them
builtin functions of CPython's (cuda/hook/cupy.c); where it finds no CPython to
make them with, they are called through ctypes.

ctypes passes keywords on, at a price: an argument the C function does not know
would raise inside CuPy. So there each callback begins as a Python function that
takes anything, and only a call that brought just the known arguments puts the C
function there.
"""

from typing import Any, Callable, Dict, Tuple

from gpurec import _hook

NAME = "gpurec"  # in CuPy's registry, where names are keys

# For ctypes: what CuPy gives to each callback that is used, and the function that
# takes it. alloc_preprocess and free_postprocess say nothing that the others don't.
CALLBACKS: Dict[str, Tuple[str, Tuple[str, ...]]] = {
    "malloc_preprocess": ("gpurec_cupy_malloc_begin", ("device_id", "size", "mem_size")),
    "alloc_postprocess": ("gpurec_cupy_alloc", ("device_id", "mem_size", "mem_ptr")),
    "malloc_postprocess": (
        "gpurec_cupy_malloc",
        ("device_id", "size", "mem_size", "mem_ptr", "pmem_id"),
    ),
    "free_preprocess": ("gpurec_cupy_free", ("device_id", "mem_size", "mem_ptr", "pmem_id")),
}


def install(memory_hook: Any) -> bool:
    """Register the hook in this thread and in each other.

    memory_hook is the module cupy.cuda.memory_hook. Reports whether CuPy's
    pool is now recorded; it is not where this process is not recorded. Called
    by sitecustomize when CuPy has been imported.
    """
    if _hook.library is None or not _hook.active():
        return False
    hook = _hook_class(memory_hook.MemoryHook, _hook.library)()
    _register(memory_hook, hook)
    table = getattr(memory_hook, "__pyx_capi__", None)
    if isinstance(table, dict):
        _hook.cupy_every_thread(table, NAME, hook)
    _register_in_new_threads(memory_hook, hook)
    return True


def _hook_class(base: type, library: Any) -> type:
    """A MemoryHook that calls functions of library."""
    cls = type("GpurecHook", (base,), {"name": NAME, "__doc__": "gpurec's eyes in CuPy's pool."})
    if not _hook.cupy_methods(cls):
        _through_ctypes(cls, library)
    return cls


def _through_ctypes(cls: type, library: Any) -> None:
    """Put the callbacks that are used into cls, as functions of ctypes."""
    import ctypes

    types = {
        "device_id": ctypes.c_int32,
        "size": ctypes.c_int64,
        "mem_size": ctypes.c_int64,
        "mem_ptr": ctypes.c_uint64,
        "pmem_id": ctypes.c_uint64,
    }
    for callback, (symbol, names) in CALLBACKS.items():
        # Every function takes last how many of the innermost Python frames are ours.
        prototype = ctypes.PYFUNCTYPE(None, *[types[n] for n in names], ctypes.c_int32)
        function = prototype((symbol, library), tuple((1, n) for n in names) + ((1, "skip", 0),))
        setattr(cls, callback, _until_proven(cls, callback, function, names))


def _until_proven(
    cls: type, callback: str, function: Callable[..., None], names: Tuple[str, ...]
) -> Callable[..., None]:
    """The callback of the calls before the one that proves what CuPy passes.

    ctypes functions are no descriptors: looked up on an instance they come
    without self, which is what C wants.
    """

    def call(self: Any, **given: Any) -> None:
        try:
            if len(given) == len(names):
                setattr(cls, callback, function)
            function(*[given[n] for n in names], 1)
        except Exception as e:
            setattr(cls, callback, _nothing)
            _hook.mark(_hook.text("gpurec: CuPy's %s is not recorded: %s: %s" % (callback, type(e).__name__, e)))

    return call


def _nothing(self: Any, **given: Any) -> None:
    """The callback of a CuPy that passes something else."""


def _register(memory_hook: Any, hook: Any) -> None:
    """Put hook into this thread's registry, once."""
    try:
        if NAME not in memory_hook.get_memory_hooks():
            hook.__enter__()
    except Exception:  # a guest: the thread runs on, its CuPy events missing
        pass


def _register_in_new_threads(memory_hook: Any, hook: Any) -> None:
    """Register in each thread as it starts, whatever CuPy's tables are.

    Thread._set_ident is called by a new thread about itself, in every CPython
    since 3.3, and by the object that stands for a thread made elsewhere. It
    returns before the thread's work begins, whereas a wrapped run or bootstrap
    would stand in every stack of the thread. threading.setprofile would do as
    well, but is the program's.
    """
    import threading

    set_ident = getattr(threading.Thread, "_set_ident", None)
    if set_ident is None:
        return

    def _set_ident(self: Any) -> None:
        set_ident(self)
        _register(memory_hook, hook)

    threading.Thread._set_ident = _set_ident  # type: ignore[attr-defined]
