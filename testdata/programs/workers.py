"""Python's ways to have workers, each of which uses the device by itself.

Shows: each worker is recorded as itself, whichever way it was started, and the
parent too; a worker that was forked after its parent had used the device is
refused it, and disturbs nobody.

Run: python workers.py fork|spawn|forkserver|loader|subprocess|late

One line each goes to standard output: pid=N allocs=N frees=N failed=N.
"""
import ctypes
import multiprocessing
import os
import subprocess
import sys


def use(n):
    """Takes n blocks and gives back all but the first; its line."""
    cuda = ctypes.CDLL("libcuda.so.1")
    ctx, blocks, failed = ctypes.c_void_p(), [], 0
    ok = cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(ctx), 0) == 0 and cuda.cuCtxSetCurrent(ctx) == 0
    for _ in range(n if ok else 1):
        p = ctypes.c_uint64()
        if cuda.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(4096)) == 0:
            blocks.append(p)
        else:
            failed += 1
    for p in blocks[1:]:
        assert cuda.cuMemFree_v2(p) == 0
    return f"pid={os.getpid()} allocs={len(blocks)} frees={max(0, len(blocks) - 1)} failed={failed}"


def loader(tasks, results):
    """A DataLoader's worker: indices in, results out, until there are no more."""
    first = use(10)
    for _ in iter(tasks.get, None):
        results.put(None)
    results.put(first)


def main(way):
    if way == "one":
        return [use(7)]
    if way == "late":
        parent = use(5)
        with multiprocessing.get_context("fork").Pool(2) as pool:
            return [parent] + pool.map(use, [3, 3], 1)
    if way == "subprocess":
        run = [sys.executable, __file__, "one"]
        lines = [subprocess.run(run, stdout=subprocess.PIPE, check=True, text=True).stdout.strip()]  # by vfork or posix_spawn
        lines.append(subprocess.run(run, stdout=subprocess.PIPE, check=True, text=True, start_new_session=True, preexec_fn=lambda: None).stdout.strip())
        return lines + [use(4)]
    if way == "loader":
        context = multiprocessing.get_context("fork")
        tasks, results = context.Queue(), context.Queue()
        workers = [context.Process(target=loader, args=(tasks, results), daemon=True) for _ in range(3)]
        for w in workers:
            w.start()
        for i in range(50):
            tasks.put(i)
        for _ in range(50):
            results.get()
        for _ in workers:
            tasks.put(None)
        lines = [results.get() for _ in workers]
        for w in workers:
            w.join()
        return lines
    parent = [] if way == "fork" else [use(6)]
    context = multiprocessing.get_context(way)
    with context.Pool(3, maxtasksperchild=1) as pool:
        lines = pool.map(use, [10, 20, 30, 40, 50, 60], 1)
        pool.close()
        pool.join()
    return parent + lines


if __name__ == "__main__":
    print("\n".join(main(sys.argv[1])))
