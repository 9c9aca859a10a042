"""Takes memory in one interpreter after the other, each made for it and then
ended, so that the next one's code lies where its code lay; prints as stacks.py
does.

Usage: subinterpreters.py COUNT legacy|isolated
"""

import json
import os
import sys
import tempfile

try:
    import _interpreters as interpreters
except ImportError:
    try:
        import _xxsubinterpreters as interpreters
    except ImportError:
        import _xxinterpreters as interpreters

SOURCE = '''
import ctypes, functools, json, operator, sys
cu = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
assert cu.cuInit(0) == 0 and cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0 and cu.cuCtxSetCurrent(context) == 0
size, p, out = {size}, ctypes.c_uint64(), open({path!r}, "a")

def note(frame=None):
    frame, stack = sys._getframe(1), []
    while frame is not None:
        stack.append([frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name, frame.f_lasti])
        frame = frame.f_back
    out.write(json.dumps([size, stack[::-1]]) + chr(10))

def give():
    assert cu.cuMemFree_v2(p) == 0

exec(compile("""
{pad}def f{name}():
{pad} any(map(operator.methodcaller("__call__"), [functools.partial(cu.cuMemAlloc_v2, ctypes.byref(p), ctypes.c_size_t(size)), note, give]))
class C:
 def m(self):
  f{name}()
C().m()
""", "made {name}", "exec"))
out.close()
'''


def create(kind):
    if sys.version_info >= (3, 13):
        return interpreters.create(kind)
    return interpreters.create(isolated=kind == "isolated")


handle, path = tempfile.mkstemp()
for i in range(int(sys.argv[1])):
    one = create(sys.argv[2])
    said = interpreters.run_string(one, SOURCE.format(size=5000 + i, path=path, pad="\n" * (i % 7), name=i % 10))
    assert said is None, said
    interpreters.destroy(one)
numbers, stacks = {}, {}
for line in open(path):
    size, stack = json.loads(line)
    stacks[size] = [numbers.setdefault(tuple(f), len(numbers)) for f in stack]
os.remove(path)
print(json.dumps({"frames": list(numbers), "stacks": stacks, "shapes": {sys.argv[2] + " interpreters": len(stacks)}}))
