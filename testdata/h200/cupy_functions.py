"""Several of CuPy's numpy-like functions, and CuPy's own numbers about them.

    gpurec run -o cupy.gpurec -- python3 cupy_functions.py DIRECTORY >cupy.jsonl

At each moment the pool's used_bytes and total_bytes are printed as a line of
JSON, and a mark "moment:NAME" stands in the trace. Each stretch runs inside
CuPy's LineProfileHook and gpurec's at once; CuPy's report of stretch NAME is
written to DIRECTORY/NAME.txt, which `gpuanalyze lines --scope NAME` must equal.
"""

import json
import os
import sys

import cupy as cp
from cupy.cuda import memory_hooks

import gpurec

POOL = cp.get_default_memory_pool()


def moment(name):
    cp.cuda.Device().synchronize()
    gpurec.mark("moment:" + name)
    print(
        json.dumps({"moment": name, "used_bytes": POOL.used_bytes(), "total_bytes": POOL.total_bytes()}), flush=True
    )


def stretch(function, directory):
    """Runs function under both hooks, and keeps CuPy's report of it."""
    name = function.__name__
    theirs = memory_hooks.LineProfileHook()
    with theirs, gpurec.LineProfileHook(name=name):
        result = function()
    with open(os.path.join(directory, name + ".txt"), "w") as f:
        theirs.print_report(file=f)
    moment(name)
    return result


def creation():
    arrays = [cp.zeros((1000, 1000)), cp.ones(1 << 20, dtype=cp.float32), cp.arange(100_000), cp.empty(333)]
    arrays.append(cp.full((512, 512), 7, dtype=cp.int8))
    arrays.append(cp.linspace(0, 1, 12345))
    arrays.append(cp.eye(300))
    arrays.append(cp.asarray([1.0, 2.0, 3.0]))
    arrays.append(cp.empty(0))
    arrays.append(cp.concatenate([arrays[1], arrays[1][:1000]]))
    return arrays


def arithmetic():
    def polynomial(x):
        return 3 * x**2 + 2 * x + 1  # temporaries, given back to the pool one by one

    a = cp.arange(1 << 20, dtype=cp.float32)
    b = a
    for _ in range(5):
        b = cp.sqrt(a + b) * 0.5
    c = polynomial(a)
    c += b
    d = a[:, None][:1000] * b[None, :1000]
    return a, b, c, cp.where(d > 3, d, 0)


def matmul():
    a = cp.ones((1024, 1024), dtype=cp.float32)
    b = a @ a
    c = cp.dot(a, b[:, 0])
    d = cp.einsum("ij,jk->ik", a, b)
    e = cp.matmul(cp.ones((8, 64, 64)), cp.ones((8, 64, 64)))
    return b, c, d, e


def reductions():
    a = cp.arange(1 << 20, dtype=cp.float64).reshape(1024, 1024)
    return a.sum(), a.mean(axis=0), a.max(axis=1), cp.cumsum(a), cp.argmin(a), a.std(), cp.median(a, axis=1)


def sorting():
    a = cp.arange(1 << 18, dtype=cp.int32)[::-1].copy()
    return cp.sort(a), cp.argsort(a), cp.unique(a // 3), cp.searchsorted(cp.arange(100), a[:50]), a.nonzero()


def main(directory):
    os.makedirs(directory, exist_ok=True)
    print(
        json.dumps(
            {
                "program": "cupy_functions.py",
                "cupy": cp.__version__,
                "device": cp.cuda.runtime.getDeviceProperties(0)["name"].decode(),
                "recorded": gpurec.active(),
            }
        ),
        flush=True,
    )
    moment("start")
    kept = {}
    for function in (creation, arithmetic, matmul, reductions, sorting):
        kept[function.__name__] = stretch(function, directory)
    # Once more, from a full pool: cache hits and splits instead of new memory.
    kept.clear()
    moment("dropped")
    for function in (creation, arithmetic):
        kept[function.__name__] = function()
    moment("again")
    kept.clear()
    POOL.free_all_blocks()
    moment("emptied")
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: cupy_functions.py DIRECTORY")
    sys.exit(main(sys.argv[1]))
