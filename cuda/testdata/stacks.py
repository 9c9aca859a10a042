"""Allocates from many kinds of Python frames and prints, as JSON, which stack
each allocation had by Python's own account: {address: [[file, line, function], ...]},
outermost first. Another thread keeps the interpreter's lock busy meanwhile.

Usage: stacks.py kinds|reuse
"""

import ctypes
import json
import opcode
import sys
import threading

cu = ctypes.CDLL("libcuda.so.1")  # gives up the lock during calls
context = ctypes.c_void_p()
for status in (cu.cuInit(0), cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), cu.cuCtxSetCurrent(context)):
    assert status == 0, status

expected = {}
address = ctypes.c_uint64()


def stack(frame):
    out = []
    while frame is not None:
        out.append([frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name])
        frame = frame.f_back
    return out[::-1]


def note(p, frame):
    assert str(p.value) not in expected, "an address was handed out twice"
    expected[str(p.value)] = stack(frame)


# The call and the look at the stack stand on one line, of the same frame.
alloc, here = cu.cuMemAlloc_v2, sys._getframe


def plain():
    p = ctypes.c_uint64(); assert alloc(ctypes.byref(p), 512) == 0; note(p, here())


class Thing:
    def method(self):
        p = ctypes.c_uint64(); assert alloc(ctypes.byref(p), 512) == 0; note(p, here())

    @property
    def value(self):
        p = ctypes.c_uint64(); assert alloc(ctypes.byref(p), 512) == 0; note(p, here())
        return 1

    def __del__(self):
        plain()


def generator():
    for _ in range(2):
        p = ctypes.c_uint64(); assert alloc(ctypes.byref(p), 512) == 0; note(p, here())
        yield


async def coroutine():
    p = ctypes.c_uint64(); assert alloc(ctypes.byref(p), 512) == 0; note(p, here())


def recurse(n):
    if n == 0:
        return plain()
    return recurse(n - 1)


def in_thread():
    assert cu.cuCtxSetCurrent(context) == 0
    recurse(2)


def größe_測る():
    plain()


def decorated(f):
    def wrapper(*a):
        return f(*a)

    return wrapper


@decorated
def under_decorator():
    plain()


def long_function():
    x = 0
    # Many empty lines, so that the line table has long jumps.
    if x:
        raise AssertionError(
            "not"
            "reached"
        )


































































































































    plain()
    for x in [
        1,
        2,
    ]:
        try:
            plain()
        finally:
            plain()


def with_cells(a, b, c, d, e):
    plain()
    return lambda: (a, b, c, d, e, plain())


def without_resume():
    """A function whose RESUME another instruction has replaced: since 3.11 its
    frames are being set up to their end, and Python does not show them."""

    def made():
        x = 0
        for x in range(3):
            pass
        plain()
        return x

    code = made.__code__
    if "RESUME" in opcode.opmap:
        words = bytearray(code.co_code)
        at = next(i for i in range(0, len(words), 2) if words[i] == opcode.opmap["RESUME"])
        words[at] = opcode.opmap["NOP"]
        if sys.version_info >= (3, 15):
            words[at + 2] = words[at]  # its cache
        made.__code__ = code.replace(co_code=bytes(words))
    made()
    made()


def kinds():
    plain()
    thing = Thing()
    thing.method()
    thing.value
    del thing
    list(generator())
    try:
        coroutine().send(None)
    except StopIteration:
        pass
    recurse(5)
    recurse(300)
    größe_測る()
    under_decorator()
    long_function()
    with_cells(1, 2, 3, 4, 5)()
    without_resume()
    plain()
    (lambda: plain())()
    [plain() for _ in range(2)]
    list(map(lambda _: plain(), range(2)))  # Python under C under Python
    sorted([2, 1], key=lambda _: plain() or 0)
    for name in ("ascii.py", "/tmp/größe.py", "/tmp/測る.py", "/tmp/\U0001f600.py", "x" * 5000):
        exec(compile("\n\nplain()\n", name, "exec"), globals())
    thread = threading.Thread(target=in_thread)
    thread.start()
    thread.join()
    plain()
    plain()  # the same stacks again, from the tables of what has been sent
    for _ in range(3):
        plain()


def reuse():
    """Code objects that live for one call: their addresses, and those of their
    names, are soon another's."""
    source = "def {name}():\n{pad}p = uint64(); alloc(byref(p), 512); note(p, here())\n"
    scope = {"uint64": ctypes.c_uint64, "byref": ctypes.byref, "alloc": alloc, "note": note, "here": here}
    for i in range(1500):
        name, pad = "f%d" % (i % 7), "\n" * (i % 13) + " "
        exec(compile(source.format(name=name, pad=pad), "<made %d>" % (i % 11), "exec"), scope)
        scope[name]()
        del scope[name]


stop = False


def hog():
    n = 0
    while not stop:
        n += 1


busy = threading.Thread(target=hog)
busy.start()
try:
    {"kinds": kinds, "reuse": reuse}[sys.argv[1]]()
finally:
    stop = True
    busy.join()
json.dump(expected, sys.stdout)
