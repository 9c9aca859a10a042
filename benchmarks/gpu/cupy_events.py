"""A worker: ns of a malloc and its free in CuPy's pool, under CuPy's hooks or ours."""

import contextlib
import time

import cupy
from cupy.cuda import memory_hook, memory_hooks

from worker import BESIDES, PAUSE, deeper, median, serve

PAIRS = 500


class Empty(memory_hook.MemoryHook):
    """The least that a hook can be: all six callbacks, in Python, doing nothing."""

    name = "Empty"

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


def our_line_profile():
    import gpurec  # there in the recorded worker alone

    return gpurec.LineProfileHook()


pool = cupy.cuda.MemoryPool()
keep = pool.malloc(1 << 20)
hooks = {"none": contextlib.nullcontext, "empty": Empty, "line": memory_hooks.LineProfileHook, "ours": our_line_profile}


def once():
    begin = time.thread_time_ns()
    for _ in range(PAIRS):
        block = pool.malloc(4096)
        del block
    return (time.thread_time_ns() - begin) / PAIRS


def pairs(hook, frames, count):
    around, out = int(frames) - BESIDES, []
    with hooks[hook]():
        for _ in range(int(count)):
            out.append(deeper(around, once))
            time.sleep(PAUSE)
    return median(out)


once()
serve({"pairs": pairs})
