"""A worker: ns an event of PyTorch's caching allocator.

    python3 torch_events.py LIBRARY LIBBURST

LIBRARY is torch.cpp compiled; without it ("-") the allocator is called from
Python, which costs more but the same for all contenders.
"""

import ctypes
import sys
import time

import torch

from worker import BESIDES, PAUSE, deeper, median, serve

PAIRS = 3000  # two events each: fits a lane of 1 MiB


def from_python():
    alloc, delete = torch._C._cuda_cudaCachingAllocator_raw_alloc, torch._C._cuda_cudaCachingAllocator_raw_delete
    stream = torch.cuda.current_stream().cuda_stream
    begin = time.thread_time_ns()
    for i in range(PAIRS):
        delete(alloc(512 << i % 8, stream))
    return (time.thread_time_ns() - begin) / PAIRS / 2


def library(path):
    # CDLL lets go of the interpreter's lock, as PyTorch's operators do.
    burst = ctypes.CDLL(path).torch_burst
    burst.restype, burst.argtypes = ctypes.c_double, (ctypes.c_uint, ctypes.c_int)
    return burst


torch.cuda.init()
keep = torch.empty(1 << 20, device="cuda")  # a context, and a segment to serve from
burst = None if sys.argv[1] == "-" else library(sys.argv[1])
limits = ctypes.PyDLL(sys.argv[2])
limits.burst_time.restype, limits.burst_time.argtypes = ctypes.c_double, (ctypes.c_void_p, ctypes.c_uint)
can_walk = limits.burst_can_walk()


def events(frames, count):
    """frames 0: on a thread that Python does not know."""
    once, around, out = from_python, int(frames) - BESIDES, []
    if burst:
        other = int(frames == "0")
        once = lambda: burst(PAIRS, other)
    for _ in range(int(count)):
        out.append(deeper(around, once))
        time.sleep(PAUSE)
    return median(out)


def limit(name, frames, count):
    if name == "walk" and not can_walk:
        raise RuntimeError("the walk knows Python 3.11 and 3.12 only")
    f, around, out = ctypes.cast(getattr(limits, "burst_" + name), ctypes.c_void_p), int(frames) - BESIDES, []
    for _ in range(int(count)):
        out.append(deeper(around, lambda: limits.burst_time(f, 8192)))
        time.sleep(PAUSE)
    return median(out)


def history(which):
    if which == "off":
        torch.cuda.memory._record_memory_history(enabled=None)
    else:
        torch.cuda.memory._record_memory_history(enabled="all", context="all", stacks=which, max_entries=100000)


serve({"events": events, "limit": limit, "history": history})
