"""Programs that run out of GPU memory, each for one reason.

    gpurec run -o list.gpurec -- python3 oom.py list

Each ends as a program does that did not expect it: with the framework's own
exception and status 1. What was wrong is the first line of its function.
"""

import argparse
import subprocess
import sys

GIB, MIB = 1 << 30, 1 << 20


def keep_losses():
    """Every step's activations stay alive: the losses are kept in a list, graph and all."""
    import torch

    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Linear(8192, 8192, device="cuda") for _ in range(4)])
    history = []
    with torch.cuda.nvtx.range("train"):
        for step in range(10_000):
            with torch.cuda.nvtx.range("step"):
                x = torch.randn(8192, 8192, device="cuda")
                history.append(model(x).square().mean())


def one_activation():
    """Attention over a sequence that is far too long: the scores alone are more than the device has."""
    import torch

    torch.manual_seed(0)
    embed = torch.nn.Embedding(1000, 64, device="cuda")
    for length in (1024, 4096, 220_000):
        with torch.cuda.nvtx.range("length %d" % length):
            x = embed(torch.randint(1000, (1, length), device="cuda"))
            scores = x @ x.transpose(-2, -1)
            del scores


def fragments():
    """Much is cached and free, in pieces that are each too small: every segment is pinned by a block."""
    import torch

    free, _ = torch.cuda.mem_get_info()
    whole = [torch.empty(GIB, dtype=torch.uint8, device="cuda") for _ in range(int(free / GIB) - 1)]
    count = len(whole)
    whole.clear()
    passing, pins = [], []
    for _ in range(count):
        passing.append(torch.empty(900 * MIB, dtype=torch.uint8, device="cuda"))
        pins.append(torch.empty(100 * MIB, dtype=torch.uint8, device="cuda"))
    passing.clear()
    torch.empty(2 * GIB, dtype=torch.uint8, device="cuda")


def neighbour():
    """Another process has most of the device."""
    hold = "import torch, sys; x = torch.empty(int(sys.argv[1]), dtype=torch.uint8, device='cuda'); print('ready', flush=True); sys.stdin.read()"
    import torch

    free, _ = torch.cuda.mem_get_info()
    other = subprocess.Popen(
        [sys.executable, "-c", hold, str(free - 12 * GIB)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={},  # not recorded: a stranger
    )
    other.stdout.readline()
    try:
        batches = []
        for _ in range(64):
            batches.append(torch.empty(GIB, dtype=torch.uint8, device="cuda"))
    finally:
        other.stdin.close()
        other.wait()


def fraction():
    """The process may have a tenth of the device only, by PyTorch's own limit."""
    import torch

    torch.cuda.set_per_process_memory_fraction(0.1)
    batches = []
    for _ in range(64):
        batches.append(torch.empty(GIB, dtype=torch.uint8, device="cuda"))


def pool_limit():
    """CuPy's pool may have 4 GiB only."""
    import cupy

    cupy.get_default_memory_pool().set_limit(size=4 * GIB)
    batches = []
    for _ in range(64):
        batches.append(cupy.zeros(256 * MIB, dtype=cupy.uint8))


def retried():
    """Does not fail: the driver refuses, PyTorch gives back what it caches, and then there is room."""
    import torch

    free, _ = torch.cuda.mem_get_info()
    whole = [torch.empty(GIB, dtype=torch.uint8, device="cuda") for _ in range(int(free / GIB) - 1)]
    whole.clear()
    torch.empty(4 * GIB, dtype=torch.uint8, device="cuda")


CASES = {
    "list": keep_losses,
    "activation": one_activation,
    "fragments": fragments,
    "neighbour": neighbour,
    "fraction": fraction,
    "pool-limit": pool_limit,
    "retried": retried,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("case", choices=CASES)
    CASES[parser.parse_args().case]()


if __name__ == "__main__":
    main()
