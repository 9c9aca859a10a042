"""A pool that calls hooks when and as CuPy's does; blocks are kept by exact size."""

import ctypes

from cupy.cuda import memory_hook


def _imported(name, signature):
    """A C function of module memory_hook, taken once and for all, as Cython does."""
    pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))
    return ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int)(pointer(memory_hook.__pyx_capi__[name], signature))


_has_memory_hooks = _imported("_has_memory_hooks", b"int (int __pyx_skip_dispatch)")


def get_memory_hooks():
    """This thread's hooks, if any; a thread that has none is asked no more."""
    return memory_hook.get_memory_hooks() if _has_memory_hooks(0) else {}


EXTRA = {}  # what a CuPy of another time would pass besides


class OutOfMemoryError(MemoryError):
    pass


class Memory:
    def __init__(self, pool, ptr, size):
        self.pool, self.ptr, self.size = pool, ptr, size

    def free(self):
        if self.pool is None:
            return
        pool, self.pool = self.pool, None
        kwargs = dict(device_id=pool.device, mem_size=self.size, mem_ptr=self.ptr, pmem_id=id(self), **EXTRA)
        for hook in get_memory_hooks().values():
            hook.free_preprocess(**kwargs)
        try:
            pool.cached.setdefault(self.size, []).append(self.ptr)
        finally:
            for hook in get_memory_hooks().values():
                hook.free_postprocess(**kwargs)

    __del__ = free


class Pool:
    def __init__(self, base=None, device=0):
        self.base, self.device, self.cached = base or Device(), device, {}

    def malloc(self, size):
        rounded = (size + 511) // 512 * 512
        begin = dict(device_id=self.device, size=size, mem_size=rounded, **EXTRA)
        for hook in get_memory_hooks().values():
            hook.malloc_preprocess(**begin)
        memory, ptr = None, 0
        try:
            if rounded == 0:
                memory = Memory(None, 0, 0)
                return memory
            ptr = self._take(rounded)
            memory = Memory(self, ptr, rounded)
            return memory
        finally:
            for hook in get_memory_hooks().values():
                hook.malloc_postprocess(mem_ptr=ptr, pmem_id=0 if memory is None else id(memory), **begin)

    def _take(self, rounded):
        if self.cached.get(rounded):
            return self.cached[rounded].pop()
        for attempt in range(3):
            kwargs = dict(device_id=self.device, mem_size=rounded, **EXTRA)
            for hook in get_memory_hooks().values():
                hook.alloc_preprocess(**kwargs)
            ptr = 0
            try:
                ptr = next(map(self.base, (rounded,)))  # a C frame in between, as Cython has
                return ptr
            except OutOfMemoryError:
                if attempt == 2:
                    raise
            finally:
                for hook in get_memory_hooks().values():
                    hook.alloc_postprocess(mem_ptr=ptr, **kwargs)


MemoryPool = Pool


class Device:
    """A base allocator: addresses that go up, and an end."""

    def __init__(self, capacity=1 << 40):
        self.next, self.left = 0x7F0000000000, capacity

    def __call__(self, size):
        if size > self.left:
            raise OutOfMemoryError("out of memory allocating %d bytes" % size)
        ptr, self.next, self.left = self.next, self.next + size, self.left - size
        return ptr
