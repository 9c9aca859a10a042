"""What a Python frame can be a frame of. Programs are written from these shapes,
at random and from a seed: each link of a chain is one shape, in a source of its
own with a name and a layout of its own, whose frames call the next link.

A shape defines NAME(), which calls NEXT once or more. Only what is in scope may
be used: the names of a program's namespace are those of stacks.py.

Usage: shapes.py SEED  (prints the first programs of a seed)
"""

import random
import sys

# shape: (the first version that has it, its source)
SHAPES = {
    "function": (9, "def NAME():\n return NEXT"),
    "arguments": (9, "def NAME():\n def f(a, *b, c=1, **d):\n  return NEXT\n return f(*[1, 2], **{'c': 3, 'e': 4})"),
    "default": (9, "def NAME():\n def f(a=NEXT):\n  return a\n return f()"),
    "lambda": (9, "NAME = lambda: NEXT"),
    "nested lambda": (9, "def NAME():\n return (lambda f: f())(lambda: NEXT)"),
    "method": (9, "class C:\n def m(self):\n  return NEXT\ndef NAME():\n return C().m()"),
    "bound": (9, "class C:\n def m(self):\n  return NEXT\nNAME = C().m"),
    "static": (9, "class C:\n @staticmethod\n def m():\n  return NEXT\n @classmethod\n def k(cls):\n  return cls.m()\ndef NAME():\n return C.k()"),
    "super": (9, "class B:\n def __init__(self):\n  NEXT\nclass C(B):\n def __init__(self):\n  super().__init__()\ndef NAME():\n C()"),
    "property": (9, "class C:\n @property\n def p(self):\n  return NEXT\ndef NAME():\n return C().p"),
    "cached property": (9, "class C:\n @functools.cached_property\n def p(self):\n  return NEXT\ndef NAME():\n return C().p"),
    "slots": (9, "class C:\n __slots__ = ('a',)\n def __setattr__(self, k, v):\n  NEXT\ndef NAME():\n C().a = 1"),
    "closure": (9, "def NAME():\n a = b = 1\n def f():\n  nonlocal a\n  a += b\n  return NEXT\n return f()"),
    "cells": (9, "def maker(a, b, c, d, e, g):\n NEXT\n return lambda: (a, b, c, d, e, g, NEXT)\ndef NAME():\n maker(1, 2, 3, 4, 5, 6)()"),
    "list": (9, "def NAME():\n return [NEXT for _ in range(2)]"),
    "set": (9, "def NAME():\n return {(NEXT, 1)[1] for _ in 'a'}"),
    "dict": (9, "def NAME():\n return {1: NEXT for _ in 'a'}"),
    "nested comprehensions": (9, "def NAME():\n k = 'a'\n return [[{x: (NEXT, k) for x in k} for y in k if k] for z in k]"),
    "comprehension in a class": (9, "def NAME():\n class C:\n  a = [NEXT for _ in 'a']"),
    "comprehension of lambdas": (9, "def NAME():\n return [f() for f in [lambda: NEXT for _ in 'a']]"),
    "generator expression": (9, "def NAME():\n return list(NEXT for _ in 'a')"),
    "walrus": (9, "def NAME():\n if (x := NEXT) or [y := NEXT for _ in 'a']:\n  return x"),
    "generator": (9, "def g():\n NEXT\n yield 1\n NEXT\ndef NAME():\n for _ in g():\n  pass"),
    "generator sent": (9, "def g():\n x = yield\n while x:\n  x = yield NEXT\ndef NAME():\n i = g()\n next(i)\n i.send(1)\n i.close()"),
    "generator thrown": (9, "def g():\n try:\n  yield\n except KeyError:\n  NEXT\n  yield\ndef NAME():\n i = g()\n next(i)\n i.throw(KeyError())"),
    "generator closed": (9, "def g():\n try:\n  yield\n finally:\n  NEXT\ndef NAME():\n i = g()\n next(i)\n i.close()"),
    "generator dropped": (9, "def g():\n try:\n  yield\n finally:\n  NEXT\ndef NAME():\n next(g())"),
    "yield from": (9, "def g(n):\n if n:\n  yield from g(n - 1)\n else:\n  yield NEXT\ndef NAME():\n list(g(5))"),
    "yield from thrown": (9, "def g():\n try:\n  yield\n except KeyError:\n  NEXT\ndef h():\n yield from g()\ndef NAME():\n i = h()\n next(i)\n try:\n  i.throw(KeyError())\n except StopIteration:\n  pass"),
    "coroutine": (9, "async def f():\n return NEXT\nasync def g():\n return await f()\ndef NAME():\n drive(g())"),
    "types.coroutine": (9, "@types.coroutine\ndef f():\n NEXT\n yield\nasync def g():\n await f()\ndef NAME():\n drive(g())"),
    "awaitable": (9, "class A:\n def __await__(self):\n  yield NEXT\nasync def g():\n await A()\ndef NAME():\n drive(g())"),
    "async generator": (9, "async def f():\n NEXT\n yield 1\n NEXT\nasync def g():\n async for _ in f():\n  NEXT\n [x async for x in f()]\ndef NAME():\n drive(g())"),
    "async with": (9, "class A:\n async def __aenter__(self):\n  NEXT\n async def __aexit__(self, *a):\n  NEXT\nasync def g():\n async with A() as x, \\\n   A():\n  NEXT\ndef NAME():\n drive(g())"),
    "asyncio": (9, "async def f():\n await asyncio.sleep(0)\n return NEXT\nasync def g():\n await asyncio.gather(f(), asyncio.create_task(f()))\ndef NAME():\n in_thread(lambda: asyncio.run(g()))"),
    "finalizer": (9, "class C:\n def __del__(self):\n  NEXT\ndef NAME():\n x = C()\n del x"),
    "collected": (9, "said = []\nclass C:\n def __del__(self):\n  said.append(1)\n  NEXT\ndef NAME():\n x = C()\n x.x = x\n del x\n gc.collect()\n said or NEXT"),
    "weakref": (9, "class C: pass\ndef NAME():\n x = C()\n r = weakref.ref(x, lambda _: NEXT)\n del x"),
    "decorator": (9, "def d(f):\n @functools.wraps(f)\n def w(*a, **k):\n  return f(*a, **k)\n return w\n@d\n@d\ndef NAME():\n return NEXT"),
    "decorator class": (9, "class D:\n def __init__(self, f): self.f = f\n def __call__(self, *a):\n  return self.f(*a)\n@D\ndef NAME():\n return NEXT"),
    "decoration": (9, "def d(f):\n NEXT\n return f\ndef NAME():\n @d\n @d\n def f(): pass"),
    "cache": (9, "def NAME():\n @functools.lru_cache(None)\n def f(x):\n  return NEXT\n return f(1)"),
    "single dispatch": (9, "@functools.singledispatch\ndef f(x): pass\n@f.register\ndef _(x: int):\n return NEXT\ndef NAME():\n return f(1)"),
    "partial": (9, "def f(a, b):\n return NEXT\nNAME = functools.partial(f, 1, b=2)"),
    "context manager": (9, "@contextlib.contextmanager\ndef c():\n NEXT\n yield\n NEXT\ndef NAME():\n with c():\n  NEXT"),
    "with": (9, "class W:\n def __enter__(self):\n  NEXT\n def __exit__(self, *a):\n  NEXT\n  return True\ndef NAME():\n with W() as a, \\\n   W():\n  NEXT\n  raise KeyError"),
    "exit stack": (9, "def NAME():\n with contextlib.ExitStack() as s:\n  s.callback(lambda: NEXT)"),
    "exec": (9, "def NAME():\n exec('\\n\\nx = 1\\n' + QUOTED + '\\n', globals(), {})"),
    "eval": (9, "def NAME():\n return eval(QUOTED)"),
    "eval of odd name": (9, "def NAME():\n return eval(compile('(\\n' + QUOTED + ')', ODD, 'eval'))"),
    "code used again": (9, "def NAME():\n c = compile(QUOTED, ODD, 'eval')\n eval(c)\n return eval(c)"),
    "code replaced": (9, "def f():\n return NEXT\nNAME = types.FunctionType(f.__code__.replace(co_name='other', co_filename=ODD, co_firstlineno=FIRST_LINE), globals())"),
    "code given": (9, "def f(): pass\ndef g():\n return NEXT\ndef NAME():\n f.__code__ = g.__code__\n return f()"),
    "code given away": (9, "def g():\n pass\ndef f():\n f.__code__ = g.__code__\n return NEXT\ndef NAME():\n c = f.__code__\n try:\n  return f()\n finally:\n  f.__code__ = c"),
    "no resume": (9, "def f():\n NEXT\nf.__code__ = without_resume(f.__code__)\ndef NAME():\n f()\n NEXT"),
    "sorted": (9, "def NAME():\n sorted([2, 1], key=lambda _: (NEXT, 0)[1])"),
    "compared": (9, "class C:\n def __lt__(self, o):\n  NEXT\n  return False\ndef NAME():\n sorted([C(), C()])"),
    "map": (9, "def NAME():\n list(map(lambda _: NEXT, range(2)))"),
    "filter": (9, "def NAME():\n list(filter(lambda _: NEXT, 'a'))"),
    "reduce": (9, "def NAME():\n functools.reduce(lambda a, b: NEXT, [1, 2, 3])"),
    "max": (9, "def NAME():\n max([1], [2], key=lambda _: (NEXT, 0)[1])"),
    "callback": (9, "def NAME():\n ctypes.CFUNCTYPE(None)(lambda: (NEXT, None)[1])()"),
    "qsort": (9, "def NAME():\n def c(a, b):\n  NEXT\n  return 0\n libc.qsort((ctypes.c_int * 2)(2, 1), ctypes.c_size_t(2), ctypes.c_size_t(4), COMPARE(c))"),
    "sub": (9, "def NAME():\n re.sub('a', lambda m: (NEXT, '')[1], 'a')"),
    "json": (9, "def NAME():\n json.dumps([object], default=lambda o: (NEXT, 1)[1])"),
    "itertools": (9, "def NAME():\n list(itertools.starmap(lambda a, b: NEXT, [(1, 2)]))\n list(itertools.accumulate([1, 2], lambda a, b: NEXT))"),
    "iterator": (9, "class I:\n def __iter__(self):\n  NEXT\n  return self\n def __next__(self):\n  NEXT\n  raise StopIteration\ndef NAME():\n for _ in I(): pass"),
    "operators": (9, "class O:\n def __add__(self, o):\n  NEXT\n  return self\n __radd__ = __getitem__ = __add__\n def __bool__(self):\n  NEXT\n  return True\n def __eq__(self, o):\n  NEXT\n  return True\n def __hash__(self):\n  NEXT\n  return 1\ndef NAME():\n o = O()\n o + 1; 1 + o; o[1]; not o; o == o; {o: 1}"),
    "formatted": (9, "class F:\n def __format__(self, s):\n  NEXT\n  return s\n def __str__(self):\n  NEXT\n  return ''\ndef NAME():\n f'''{F()}\n {F():x} {F()!s}'''\n str(F())"),
    "missing": (9, "class M(dict):\n def __missing__(self, k):\n  return NEXT\ndef NAME():\n M()[1]"),
    "attribute": (9, "class A:\n def __getattr__(self, k):\n  return NEXT\ndef NAME():\n A().anything\n getattr(A(), 'x', None)"),
    "descriptor": (9, "class D:\n def __get__(self, o, k):\n  return NEXT\n def __set__(self, o, v):\n  NEXT\nclass C:\n d = D()\ndef NAME():\n C().d\n C().d = 1"),
    "class body": (9, "def NAME():\n class C:\n  a = 1\n  NEXT\n  class D:\n   NEXT"),
    "metaclass": (9, "class M(type):\n def __new__(m, *a):\n  NEXT\n  return super().__new__(m, *a)\n def __call__(c):\n  NEXT\ndef NAME():\n class C(metaclass=M): pass\n C()"),
    "subclassed": (9, "class B:\n def __init_subclass__(cls):\n  NEXT\n def __class_getitem__(cls, k):\n  return NEXT\ndef NAME():\n class C(B): pass\n C[1]"),
    "dataclass": (9, "@dataclasses.dataclass\nclass D:\n a: int = 1\n def __post_init__(self):\n  NEXT\ndef NAME():\n D()"),
    "import": (9, "class L:\n def find_spec(self, name, *a):\n  return importlib.util.spec_from_loader(name, self) if name == 'made_NAME' else None\n def create_module(self, spec): return None\n def exec_module(self, m):\n  NEXT\ndef NAME():\n l = L()\n sys.meta_path.insert(0, l)\n try:\n  import made_NAME\n finally:\n  sys.meta_path.remove(l)\n  sys.modules.pop('made_NAME', None)"),
    "handler": (9, "def NAME():\n try:\n  raise KeyError\n except KeyError as e:\n  NEXT\n  try:\n   raise ValueError from e\n  except ValueError:\n   NEXT\n  else:\n   pass\n finally:\n  NEXT"),
    "in flight": (9, "def f():\n try:\n  1 / 0\n finally:\n  NEXT\ndef NAME():\n try:\n  f()\n except ZeroDivisionError:\n  pass"),
    "traceback kept": (9, "def f():\n x = NEXT\n raise KeyError(x)\ndef NAME():\n try:\n  f()\n except KeyError as e:\n  t = e.__traceback__\n  NEXT\n  return t and None"),
    "loops": (9, "def NAME():\n for i in range(3):\n  if i == 1:\n   continue\n  while True:\n   NEXT\n   break\n else:\n  NEXT"),
    "hot": (9, "def f(i):\n if i % 1000 == 999:\n  NEXT\n return i + 1\ndef NAME():\n t = 0\n for i in range(5000):\n  t += f(i)\n  if i == 4999:\n   NEXT"),
    "hot generator": (9, "def g(n):\n for i in range(n):\n  if i == 3000:\n   NEXT\n  yield i\ndef NAME():\n sum(x for x in g(3001))\n for x in g(3001):\n  pass"),
    "many instructions": (9, "def NAME():\n x = 0\n" + "".join(" x += %d\n" % (i * 1001) for i in range(300)) + " NEXT\n if x: pass\n else:\n" + "".join("  x = (x, %d)\n" % (i * 1003) for i in range(300)) + " NEXT"),
    "recursion": (9, "def f(n):\n if n == 0:\n  return NEXT\n return f(n - 1)\ndef NAME():\n return f(DEPTH)"),
    "mutual recursion": (9, "def f(n):\n return g(n - 1)\ndef g(n):\n return f(n) if n > 0 else NEXT\ndef NAME():\n return f(DEPTH)"),
    "deep recursion": (9, "def f(n):\n if n:\n  f(n - 1)\n else:\n  NEXT\ndef NAME():\n f(3000)"),
    "recursion by C": (9, "def f(n):\n return list(map(f, [n - 1])) if n else NEXT\ndef NAME():\n return f(30)"),
    "thread": (9, "def NAME():\n def f():\n  NEXT\n in_thread(f)"),
    "thread of a class": (9, "class T(threading.Thread):\n def run(self):\n  NEXT\ndef NAME():\n t = T()\n t.start()\n t.join()"),
    "pool": (9, "def NAME():\n with concurrent.futures.ThreadPoolExecutor(1) as p:\n  p.submit(lambda: NEXT).result()"),
    "context": (9, "def NAME():\n return contextvars.copy_context().run(lambda: NEXT)"),
    "signal": (9, "def NAME():\n if threading.current_thread() is not threading.main_thread():\n  return NEXT\n old = signal.signal(signal.SIGUSR1, lambda *_: NEXT)\n try:\n  signal.raise_signal(signal.SIGUSR1)\n finally:\n  signal.signal(signal.SIGUSR1, old)"),
    "greenlet": (9, "def NAME():\n greenlet.greenlet(lambda: NEXT).switch()"),
    "greenlets": (9, "def NAME():\n def f():\n  NEXT\n  b.switch()\n  NEXT\n def g():\n  NEXT\n  a.switch()\n a, b = greenlet.greenlet(f), greenlet.greenlet(g)\n a.switch()"),
    "gevent": (9, "def NAME():\n in_thread(lambda: gevent.joinall([gevent.spawn(lambda: (gevent.sleep(0), NEXT)) for _ in 'ab']))"),
    "traced": (9, "def NAME():\n old = sys.gettrace()\n sys.settrace(lambda *_: None)\n try:\n  return NEXT\n finally:\n  sys.settrace(old)"),
    "tracer": (9, "def NAME():\n said = []\n def tracer(frame, event, arg):\n  if event == 'line':\n   sys.settrace(None)\n   said.append(1)\n   NEXT\n  return tracer\n def f():\n  x = 1\n  return x\n old = sys.gettrace()\n sys.settrace(tracer)\n f()\n sys.settrace(old)\n said or NEXT"),
    "traced lines": (9, "def NAME():\n def tracer(frame, event, arg):\n  return tracer\n def f():\n  return NEXT\n old = sys.gettrace()\n sys.settrace(tracer)\n try:\n  f()\n finally:\n  sys.settrace(old)"),
    "profiled": (9, "def NAME():\n if sys.getprofile():\n  return NEXT\n sys.setprofile(lambda *_: None)\n try:\n  return NEXT\n finally:\n  sys.setprofile(None)"),
    "cProfile": (9, "def NAME():\n try:\n  p = cProfile.Profile()\n  p.enable()\n except ValueError:\n  return NEXT\n try:\n  return NEXT\n finally:\n  p.disable()"),
    "match": (10, "def NAME():\n match [1, 2]:\n  case [x, *_] if NEXT or x:\n   NEXT"),
    "except*": (11, "def NAME():\n try:\n  raise ExceptionGroup('', [KeyError(), ValueError()])\n except* KeyError:\n  NEXT\n except* ValueError:\n  NEXT"),
    "generic": (12, "def NAME():\n def f[T: int](x: T) -> T:\n  return NEXT\n class C[U]:\n  NEXT\n type A[V] = (NEXT, V)\n A.__value__\n return f(1)"),
    "monitored": (12, "def NAME():\n m = sys.monitoring\n tool = next(i for i in range(6) if m.get_tool(i) is None)\n m.use_tool_id(tool, 'stacks')\n said = []\n def line(code, n):\n  if not said:\n   said.append(1)\n   NEXT\n def f():\n  NEXT\n try:\n  m.register_callback(tool, m.events.LINE, line)\n  m.set_local_events(tool, f.__code__, m.events.LINE | m.events.PY_START | m.events.CALL)\n  f()\n finally:\n  m.set_local_events(tool, f.__code__, 0)\n  m.free_tool_id(tool)"),
    "annotation": (14, "def NAME():\n def f(x: NEXT): pass\n return f.__annotations__ and None"),
    "template": (14, "def NAME():\n return t'''{NEXT}\n {NEXT}'''"),
}

FILES = ("made.py",) * 20 + ("ascii.py", "", "/tmp/größe.py", "/tmp/測る.py", "/tmp/\U0001f600.py", "not\udcff\udc80utf8.py", "x" * 4096, "y" * 5000, "é" * 4500, "測" * 3000, "a b\n\t'\".py", "<string>")
NAMES = ("f",) * 15 + ("größe", "測る", "𠀀") * 5 + ("n" * 600, "ñ" * 5000)
LAYOUTS = ("%s", "(%s)", "(\n\n\n%s\n\n)", "(None,\n %s,\n\n None)[1]", "[\n\n%s][0]", "(lambda:\n None, %s)[1]")
LEAVES = ("take()", "any(map(CALL, steps()))", "any(\n map(\n\n  CALL,\n  steps()))")


def weight(shape):
    """About how often it calls the next link; more of what takes long."""
    if shape.startswith(("hot", "deep")):
        return 8
    return SHAPES[shape][1].count("NEXT") * (2 if "range(" in SHAPES[shape][1] else 1) or 2


class Writer:
    """Writes programs: lists of (shape, source, the file name it is compiled with,
    the name that it defines), of which each needs the ones before it."""

    def __init__(self, seed, leave_out=()):
        self.dice = random.Random(seed)
        self.made = 0
        self.shapes = [s for s, (since, _) in SHAPES.items() if since <= sys.version_info[1] and s not in leave_out]

    def program(self, first):
        """A program that has the shape first, with others around it and in it, of
        not too many allocations."""
        shapes, most = [first], 16 // weight(first)
        for _ in range(self.dice.randrange(9)):
            shape = self.dice.choice(self.shapes)
            if weight(shape) <= most:
                most //= weight(shape)
                shapes.insert(self.dice.randrange(len(shapes) + 1), shape)
        call, links = self.dice.choice(LEAVES), []
        for shape in shapes:
            links.append((shape,) + self.link(shape, call))
            call = links[-1][-1] + "()"
        return links

    def link(self, shape, call):
        dice = self.dice
        self.made += 1
        name = "%s_%d" % (dice.choice(NAMES), self.made)
        source = SHAPES[shape][1].replace("QUOTED", repr("\n" * dice.randrange(9) + call)).replace("ODD", repr(dice.choice(FILES))).replace("FIRST_LINE", str(dice.randrange(1, 100000)))
        source = source.replace("DEPTH", str(dice.randrange(20, 200)))
        while "NEXT" in source:
            source = source.replace("NEXT", dice.choice(LAYOUTS) % call, 1)
        lines = [""] * dice.randrange(4)
        for line in source.replace("NAME", name).split("\n"):
            lines.append(line)
            if not line.endswith("\\"):
                lines += [""] * (dice.random() < 0.2) * dice.choice((1, 2, 50, 130, 300))
        return "\n".join(lines) + "\n", dice.choice(FILES), name


if __name__ == "__main__":
    writer = Writer(int(sys.argv[1]))
    for shape in writer.shapes[:10]:
        print(*("# ---- %s\n%s" % link[:2] for link in writer.program(shape)), sep="\n")
