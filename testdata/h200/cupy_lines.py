"""CuPy's LineProfileHook and gpurec's at once, over what CuPy can do with memory.

    gpurec run -o lines.gpurec -- python3 cupy_lines.py DIRECTORY

Each stretch runs inside CuPy's hook at each max_depth from 0 to 6 (under names
of their own, as CuPy's registry is keyed by name) and inside gpurec's. Written
to DIRECTORY, for stretch NAME and max_depth D:

    NAME.D.cupy     CuPy's report, which `gpuanalyze lines --scope NAME --max-depth D` must equal
    NAME.D.live     what gpurec.LineProfileHook prints in the program, which must be the same
    stretches       the names, a line each
"""

import asyncio
import contextlib
import functools
import gc
import os
import sys
import threading

import cupy as cp
from cupy.cuda import memory_hooks
from cupy_functions import arithmetic, creation, matmul, reductions, sorting

import gpurec

DEPTHS = range(7)
POOL = cp.get_default_memory_pool()


class Measured:
    """CuPy's hooks and gpurec's around what is inside; on several threads at once if they like."""

    def __init__(self, name, directory):
        self.name, self.directory = name, directory
        # A class of another name each: CuPy's registry is keyed by it.
        self.cupys = [type("Depth%d" % d, (memory_hooks.LineProfileHook,), {"name": "depth %d" % d})(d) for d in DEPTHS]
        self.lives = []
        if hasattr(gpurec.LineProfileHook, "print_report"):
            self.lives = [gpurec.LineProfileHook(d, name="%s, live, depth %d" % (name, d)) for d in DEPTHS]

    @contextlib.contextmanager
    def inside(self):
        with contextlib.ExitStack() as stack:
            for hook in (*self.cupys, *self.lives, gpurec.LineProfileHook(name=self.name)):
                stack.enter_context(hook)
            yield

    def write(self):
        for kind, hooks in (("cupy", self.cupys), ("live", self.lives)):
            for depth, hook in enumerate(hooks):
                with open(os.path.join(self.directory, "%s.%d.%s" % (self.name, depth, kind)), "w") as f:
                    hook.print_report(file=f)
        with open(os.path.join(self.directory, "stretches"), "a") as f:
            print(self.name, file=f)


def stretch(name, function, directory):
    measured = Measured(name, directory)
    with measured.inside():
        result = function()
    measured.write()
    return result


def svd():
    a = cp.ones((200, 100), dtype=cp.float32)
    return cp.linalg.svd(a), cp.linalg.qr(a), cp.linalg.solve(cp.eye(50), cp.ones(50)), cp.linalg.norm(a)


def fft():
    a = cp.ones((64, 1000), dtype=cp.complex64)
    return cp.fft.fft(a), cp.fft.ifft2(a), cp.fft.rfft(cp.ones(4097)), cp.fft.fftn(cp.ones((16, 16, 16)))


def fancy_indexing():
    a = cp.arange(100_000, dtype=cp.float32).reshape(1000, 100)
    i = cp.asarray([3, 1, 4, 1, 5])
    b = a[i], a[i, :50], a[a > 50_000], a[:, i], cp.take(a, i, axis=0), a[::7, None, ::3]
    a[i] = 7
    a[a < 10] *= 2
    return b


def random():
    cp.random.seed(1)
    g = cp.random.default_rng(2)
    return cp.random.rand(1000), cp.random.randint(0, 9, (50, 50)), cp.random.normal(size=333), g.random(100), cp.random.permutation(500)


def shapes_of_stacks():
    """Every way for Python to come to a line that takes memory."""

    def down(n):
        return down(n - 1) if n else cp.empty(100 + n)

    def generated():
        yield cp.empty(1)
        yield from (cp.empty(n) for n in (2, 3))

    async def awaited(n):
        await asyncio.sleep(0)
        return cp.empty(n)

    async def together():
        return await asyncio.gather(awaited(1000), awaited(2000))

    class Body:
        kept = cp.empty(77)

        @property
        def made(self):
            return cp.empty(78)

        def __len__(self):
            cp.empty(79)
            return 1

    namespace = {"cp": cp}
    exec(compile("a = cp.empty(5000)\n\nb = [cp.empty(n)\n     for n in (6000, 7000)]\n", "<made here>", "exec"), namespace)
    kept = [down(40), *generated(), *asyncio.run(together()), Body().made, len(Body()), namespace]
    kept += map(lambda n: cp.empty(n), (10, 20))
    kept += [functools.partial(cp.empty, 30)(), functools.reduce(lambda a, n: [a, cp.empty(n)], (40, 50), None)]
    kept.append(sorted((2, 1), key=lambda n: cp.empty(n).nbytes))
    kept += [cp.empty(2), cp.empty(
        3
    )]
    return kept


def too_large():
    """Requests that fail at the driver (three attempts each), at the pool's limit (none), and one that a collection saves."""
    for size in (1 << 45, 1 << 46):
        try:
            cp.empty(size, dtype=cp.int8)
        except cp.cuda.memory.OutOfMemoryError:
            pass
    POOL.set_limit(size=POOL.total_bytes() + (1 << 20))
    try:
        cp.empty(1 << 24, dtype=cp.int8)
    except cp.cuda.memory.OutOfMemoryError:
        pass
    finally:
        POOL.set_limit(size=0)
    return cp.empty(12345)


class Cycle:
    """Garbage that only the collector finds, and that takes memory as it goes."""

    def __init__(self):
        self.myself, self.kept = self, cp.empty(1 << 20)

    def __del__(self):
        cp.empty(4321)


def finalizers():
    """Memory given back, and taken, inside the collection that a failing request starts."""
    gc.disable()
    try:
        for _ in range(3):
            Cycle()
        cp.empty(1 << 45, dtype=cp.int8)
    except cp.cuda.memory.OutOfMemoryError:
        pass
    finally:
        gc.enable()
    return cp.empty(1 << 18)


def pool_over_a_pool():
    """CuPy counts such memory twice: at the outer pool and at the inner."""
    outer = cp.cuda.MemoryPool(cp.cuda.MemoryPool().malloc)
    kept = [outer.malloc(1000), outer.malloc(5000)]
    del kept[0]
    return kept, outer.malloc(900)


def two_threads(first, second):
    """Two threads that take memory in turns, each inside hooks of its own or both inside the same."""
    turn = threading.Barrier(2)

    def work(index, measured):
        with measured.inside():
            kept = []
            for step in range(6):
                turn.wait()
                if step % 2 == index:
                    kept.append(cp.empty(1000 * (step + 1)))
                    kept.append(cp.ones(100) + step)
                turn.wait()

    threads = [threading.Thread(target=work, args=(i, m)) for i, m in enumerate((first, second))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for m in {first, second}:
        m.write()


STRETCHES = (
    creation,
    arithmetic,
    matmul,
    reductions,
    sorting,
    svd,
    fft,
    fancy_indexing,
    random,
    shapes_of_stacks,
    pool_over_a_pool,
    too_large,
    finalizers,
)


def main(directory):
    os.makedirs(directory)
    kept = {f.__name__: stretch(f.__name__, f, directory) for f in STRETCHES}
    two_threads(Measured("one-thread", directory), Measured("the-other-thread", directory))
    both = Measured("both-threads", directory)
    two_threads(both, both)
    kept.clear()
    for f in (creation, arithmetic):  # from a full pool: hits and splits
        stretch(f.__name__ + "-again", f, directory)
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: cupy_lines.py DIRECTORY, which must not be there")
    sys.exit(main(sys.argv[1]))
