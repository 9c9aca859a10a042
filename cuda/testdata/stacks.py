"""Takes memory from many kinds of Python frames, while another thread keeps the
interpreter busy, and prints as JSON which stack each allocation had by Python's
own account, at the very instruction that allocates:

    {"frames": [[file, line, function, instruction], ...],
     "stacks": {size: [index of a frame, ...], ...},      outermost first
     "shapes": {name: how many links}}

Each allocation has a size of its own, by which it is known.

Usage: stacks.py shapes SEED COUNT    programs of shapes.py: each shape first, then COUNT at random
       stacks.py reuse COUNT          code objects that live for one call
"""

import ast
import asyncio
import collections
import concurrent.futures
import contextlib
import contextvars
import cProfile
import ctypes
import dataclasses
import faulthandler
import functools
import gc
import importlib.machinery
import importlib.util
import itertools
import json
import opcode
import operator
import os
import py_compile
import random
import re
import shutil
import signal
import sys
import tempfile
import threading
import traceback
import types
import weakref
import zipfile
import zipimport

here = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [here, os.path.join(here, "../../.build/pythons/site/%d.%d" % sys.version_info[:2])]
import shapes

try:
    import greenlet
except ImportError:
    greenlet = None
try:
    import gevent
except ImportError:
    gevent = None

libc = ctypes.CDLL(None)
COMPARE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
cu = ctypes.CDLL("libcuda.so.1")  # gives up the lock during calls
context = ctypes.c_void_p()
for status in (cu.cuInit(0), cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), cu.cuCtxSetCurrent(context)):
    assert status == 0, status

sizes = itertools.count(1 << 10)
numbers, stacks = {}, {}  # of frames; of sizes


def note(size):
    """What Python says of the frame that calls this, and of those around it."""
    stack = []
    for frame, line in traceback.walk_stack(sys._getframe(1)):
        of = (frame.f_code.co_filename, line, frame.f_code.co_name, frame.f_lasti)
        stack.append(numbers.setdefault(of, len(numbers)))
    stacks[size] = stack[::-1]


# Both are called by one instruction of one frame: any(map(CALL, steps())).
CALL = operator.methodcaller("__call__")


def steps():
    assert cu.cuCtxSetCurrent(context) == 0  # this may be a new thread
    p, size = ctypes.c_uint64(), next(sizes)
    return [functools.partial(cu.cuMemAlloc_v2, ctypes.byref(p), ctypes.c_size_t(size)), functools.partial(note, size), functools.partial(give, p)]


def give(p):
    assert cu.cuMemFree_v2(p) == 0


def take(*_):
    any(map(CALL, steps()))


def drive(coroutine):
    try:
        while True:
            coroutine.send(None)
    except StopIteration:
        pass


def in_thread(f):
    thread = threading.Thread(target=f)
    thread.start()
    thread.join()


def without_resume(code):
    """Code whose RESUME another instruction has replaced: since 3.11 its frames
    are being set up to their end, and Python does not show them."""
    if "RESUME" not in opcode.opmap:
        return code
    words = bytearray(code.co_code)
    at = next(i for i in range(0, len(words), 2) if words[i] == opcode.opmap["RESUME"])
    words[at] = opcode.opmap["NOP"]
    if sys.version_info >= (3, 15):
        words[at + 2] = words[at]  # its cache
    return code.replace(co_code=bytes(words))


# ---- the ways of code into the interpreter -----------------------------------


class Loader:
    def __init__(self, dice):
        self.dice = dice
        self.folder = tempfile.mkdtemp(prefix="stacks-größe-")
        self.made = 0

    def code(self, source, name):
        way = self.dice.choice((self.compiled,) * 3 + (self.moved, self.file, self.bytecode, self.zipped))
        return way(source, name)

    def compiled(self, source, name):
        return compile(source, name, "exec")

    def moved(self, source, name):
        """Lines far apart: up to a million where that takes a few bytes. They stay
        in order: of a line before its code's first 3.14's own account is wrong once
        the code was traced."""
        tree, most = ast.parse(source), 21 if sys.version_info >= (3, 11) else 12
        to = list(itertools.accumulate(1 << self.dice.randrange(most) if self.dice.random() < 0.1 else 1 for _ in range(source.count("\n") + 2)))
        for node in ast.walk(tree):
            if hasattr(node, "lineno"):
                node.lineno, node.end_lineno = to[node.lineno], to[node.end_lineno]
        return compile(tree, name, "exec")

    def path(self, ending):
        self.made += 1
        return os.path.join(self.folder, self.dice.choice(("m%d", "größe%d", "測%d", "\U0001f600%d")) % self.made + ending)

    def file(self, source, name):
        """A module's file in an encoding that has all its characters."""
        path = self.path(".py")
        for encoding, first in (("latin-1", "# coding: latin-1\n"), ("cp932", "# -*- coding: cp932 -*-\n"), ("utf-8-sig", ""), ("utf-8", "")):
            try:
                text = (first + source).encode(encoding)
            except UnicodeEncodeError:
                continue
            if self.dice.random() < 0.7:
                break
        with open(path, "wb") as f:
            f.write(text)
        return importlib.machinery.SourceFileLoader("m", path).get_code("m")

    def bytecode(self, source, name):
        path = self.path(".py")
        with open(path, "w", encoding="utf-8") as f:
            f.write(source)
        py_compile.compile(path, path + "c", doraise=True)
        os.remove(path)
        return importlib.machinery.SourcelessFileLoader("m", path + "c").get_code("m")

    def zipped(self, source, name):
        path = self.path(".zip")
        with zipfile.ZipFile(path, "w") as z:
            z.writestr("m.py", source.encode("utf-8"))
        return zipimport.zipimporter(path).get_code("m")


# ---- modes -------------------------------------------------------------------


def run_shapes(seed, count):
    """Each shape, then count programs at random; returns how many links ran."""
    leave_out = [s for s, module in (("greenlet", greenlet), ("greenlets", greenlet), ("gevent", gevent)) if module is None]
    writer = shapes.Writer(seed, leave_out)
    loader = Loader(random.Random(seed))
    links = collections.Counter()
    sys.setrecursionlimit(100000)
    threading.excepthook = sys.unraisablehook = lambda what: (traceback.print_exception(what.exc_type, what.exc_value, what.exc_traceback), os._exit(3))
    try:
        for first in writer.shapes + [None] * count:
            program = writer.program(first or writer.dice.choice(writer.shapes))
            had, call = len(stacks), {}
            try:
                for shape, source, name, defines in program:
                    space = dict(globals(), **call)
                    exec(loader.code(source, name), space)
                    call = {defines: space[defines]}
                call[defines]()
                assert len(stacks) > had, "it takes no memory"
            except BaseException:
                print(*("# ---- %s\n%s" % link[:2] for link in program), sep="\n", file=sys.stderr)
                raise
            links.update(link[0] for link in program)
    finally:
        shutil.rmtree(loader.folder)
    return links


def run_reuse(count):
    """Code objects that live for one call: their addresses, and those of their
    names, are soon another's."""
    made = {
        "def": "{pad}def {name}():\n{pad} any(map(CALL, steps()))",
        "lambda": "{pad}{name} = lambda: any(map(CALL,{pad}steps()))",
        "generator": "{pad}def g():\n{pad} any(map(CALL, steps()))\n yield\n{name} = lambda: list(g())",
        "class": "class C:\n{pad} def {name}(self):\n{pad}  any(map(CALL, steps()))\n{name} = C().{name}",
        "replaced": "def {name}():\n{pad} any(map(CALL, steps()))\n{name}.__code__ = {name}.__code__.replace(co_firstlineno={line}, co_name='r{line}')",
    }
    kinds = list(made)
    for i in range(count):
        name = "f%d" % (i % 7)
        source = made[kinds[i % 5]].format(name=name, pad="\n" * (i % 13), line=i % 1000 + 1)
        space = {"CALL": CALL, "steps": steps}
        exec(compile(source, "<made %d>" % (i % 11), "exec"), space)
        space[name]()
        if i % 1000 == 0:
            gc.collect()
    return {"code objects": count}


faulthandler.dump_traceback_later(400, exit=True)  # a test that hangs says where
stop = False


def hog():
    n = 0
    while not stop:
        n += 1


busy = threading.Thread(target=hog)
busy.start()
sys.setswitchinterval(1e-4)
try:
    links = {"shapes": run_shapes, "reuse": run_reuse}[sys.argv[1]](*map(int, sys.argv[2:]))
finally:
    stop = True
    busy.join()
print(json.dumps({"frames": list(numbers), "stacks": stacks, "shapes": links}))
