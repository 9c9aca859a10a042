"""Takes memory from stacks that alternate between Python and a C library, and
prints for each allocation its address and what stands where, innermost first:
FILE:FUNCTION of Python's frames, "through" for the library's between two.

Usage: merged.py LIBRARY  (made of through.c)
"""

import ctypes
import os
import random
import sys

REPORT = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_size_t)
library = ctypes.CDLL(sys.argv[1])
library.through.argtypes = [REPORT, ctypes.c_char_p]
library.through.restype = None
driver = ctypes.CDLL("libcuda.so.1")
dice = random.Random(3)


def take():
    address = ctypes.c_uint64()
    assert driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(4096)) == 0
    words, frame = [], sys._getframe()
    while frame is not None:
        code = frame.f_code
        words.append(os.path.basename(code.co_filename) + ":" + code.co_name)
        if code.co_name == "called":
            words.append("through")
        frame = frame.f_back
    print(address.value, *words, sep="\t")


def through(n):
    def called(kind, size):
        step(n)

    library.through(REPORT(called), b"")


def plain(n):
    step(n)


def ordered(n):  # C of the interpreter's own between two frames
    sorted([1], key=lambda _: step(n))


def generated(n):
    for _ in (step(n) for _ in range(1)):
        pass


def delegated(n):
    def inner():
        yield step(n)

    def outer():
        yield from inner()

    list(outer())


class Made:
    def __init__(self, n):
        step(n)

    def __del__(self):
        pass


def made(n):
    Made(n)


def looked_up(n):
    class Lazy:
        def __getattr__(self, name):
            step(n)

    Lazy().anything


def executed(n):
    exec("step(n)", {"step": step, "n": n})


def spread(n):
    (lambda *a, **k: step(*a))(*[n], **{})


KINDS = [through, plain, ordered, generated, delegated, made, looked_up, executed, spread]


def step(n):
    if n <= 0:
        take()
    else:
        dice.choice(KINDS)(n - 1)


assert driver.cuInit(0) == 0
context = ctypes.c_void_p()
assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert driver.cuCtxSetCurrent(context) == 0
for kind in KINDS:
    kind(0)
for i in range(200):
    step(dice.randrange(12))
through(3)
