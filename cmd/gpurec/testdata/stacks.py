"""Takes memory from many places and prints, for each address, the stack that
Python itself sees there: innermost line first, ADDRESS FILE:LINE:FUNCTION …"""

import ctypes
import gc
import sys
import threading

cu = ctypes.CDLL("libcuda.so.1")
ctx = ctypes.c_void_p()
assert cu.cuInit(0) == 0
assert cu.cuDevicePrimaryCtxRetain(ctypes.byref(ctx), 0) == 0
lock = threading.Lock()


def take():
    p = ctypes.c_uint64()
    f = sys._getframe()
    status = cu.cuMemAlloc_v2(ctypes.byref(p), 512); line = f.f_lineno
    assert status == 0
    out = ["%s:%d:%s" % (f.f_code.co_filename, line, f.f_code.co_name)]
    f = f.f_back
    while f is not None:
        out.append("%s:%d:%s" % (f.f_code.co_filename, f.f_lineno, f.f_code.co_name))
        f = f.f_back
    with lock:
        print("%d\t%s" % (p.value, "\t".join(out)))


def deep(n):
    if n > 0:
        return deep(
            n - 1
        )
    take()


class Model:
    @property
    def weights(self):
        take()

    def __enter__(self):
        take()

    def __exit__(self, *args):
        take()

    def __getitem__(self, key):
        return [take() for _ in range(key)]


def generator():
    take()
    yield 1
    take()


def everything():
    take()
    deep(40)
    m = Model()
    m.weights
    with m as x, m \
            as y:
        pass
    m[2]
    for _ in generator():
        take()
    sorted([2, 1], key=lambda v: take() or v)
    try:
        raise ValueError
    except ValueError:
        take()
    finally:
        take()


assert cu.cuCtxSetCurrent(ctx) == 0
everything()

# Code objects that come and go, so that their addresses are used again.
for i in range(300):
    space = {"take": take}
    source = "\n" * (i % 50) + "def made_%d():\n  take()\nmade_%d()\n" % (i, i)
    exec(compile(source, "made-%d-ä.py" % i, "exec"), space)
    del space
    gc.collect(0)


def worker():
    cu.cuCtxSetCurrent(ctx)
    for _ in range(20):
        everything()


threads = [threading.Thread(target=worker) for _ in range(4)]
for t in threads:
    t.start()
for t in threads:
    t.join()
