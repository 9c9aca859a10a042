"""Alters what the hook judges an interpreter's layout by, then takes memory.

Usage: altered.py version|preview|size|member|cookie|offset|threaded|nothing
"""

import ctypes
import sys
import sysconfig

what = sys.argv[1]
api = ctypes.pythonapi
api.Py_GetVersion.restype = ctypes.c_void_p
version = api.Py_GetVersion()
head = 16 if sysconfig.get_config_var("Py_GIL_DISABLED") else 0
code_type = id(type(compile("", "", "exec")))


def word(at):
    return ctypes.c_uint64.from_address(at)


def member(name):
    at = word(code_type + 240 + head).value  # tp_members
    while ctypes.c_char_p.from_address(at).value != name:
        at += 40
    return word(at + 16)


if what == "version":
    ctypes.memmove(version, b"3.99.1 ", 7)
elif what == "preview":
    ctypes.memmove(version, ("%d.%d.0a1 " % sys.version_info[:2]).encode(), 8)
elif what == "size":
    word(code_type + 32 + head).value += 8  # tp_basicsize
elif what == "member":
    member(b"co_firstlineno").value += 4
elif what != "nothing":
    runtime = ctypes.addressof(ctypes.c_char.in_dll(api, "_PyRuntime"))
    if what == "cookie":
        word(runtime).value += 1
    elif what == "threaded":
        word(runtime + 16).value ^= 1
    else:
        at = next(at for at in range(24, 400, 8) if word(runtime + at).value == member(b"co_filename").value)
        word(runtime + at).value += 8


def take():
    cu = ctypes.CDLL("libcuda.so.1")
    context, p = ctypes.c_void_p(), ctypes.c_uint64()
    assert cu.cuInit(0) == 0 and cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0 and cu.cuCtxSetCurrent(context) == 0
    assert cu.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(777)) == 0


take()
