"""The registry: one per thread, in the order of entry, keyed by name.

Its two functions are also C functions, in the table that Cython makes of what
other modules may call.
"""

import ctypes
import threading
from collections import OrderedDict

_local = threading.local()


def get_memory_hooks():
    if not hasattr(_local, "hooks"):
        _local.hooks = OrderedDict()
    return _local.hooks


def _has_memory_hooks():
    return hasattr(_local, "hooks")


def _capsule(kind, name, function):
    made = ctypes.PYFUNCTYPE(kind, ctypes.c_int)(lambda skip_dispatch: function())
    new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(("PyCapsule_New", ctypes.pythonapi))
    return made, name, new(ctypes.cast(made, ctypes.c_void_p), name, None)


_keep = (
    _capsule(ctypes.c_int, b"int (int __pyx_skip_dispatch)", _has_memory_hooks),
    _capsule(ctypes.py_object, b"PyObject *(int __pyx_skip_dispatch)", get_memory_hooks),
)
__pyx_capi__ = {"_has_memory_hooks": _keep[0][2], "get_memory_hooks": _keep[1][2]}


class MemoryHook:
    name = "MemoryHook"

    def __enter__(self):
        hooks = get_memory_hooks()
        if self.name in hooks:
            raise KeyError("memory hook %s already exists" % self.name)
        hooks[self.name] = self
        return self

    def __exit__(self, *exception):
        del get_memory_hooks()[self.name]

    def alloc_preprocess(self, **kwargs):
        pass

    def alloc_postprocess(self, **kwargs):
        pass

    def malloc_preprocess(self, **kwargs):
        pass

    def malloc_postprocess(self, **kwargs):
        pass

    def free_preprocess(self, **kwargs):
        pass

    def free_postprocess(self, **kwargs):
        pass
