"""More programs that run out of memory, or not, and what gpuanalyze oom should say of each.

    gpurec run -v -o more-CASE.gpurec -- python3 oom_more.py CASE

append     the losses of oom.py's list without any NVTX range      growing-memory
caught     a batch-size finder: fails twice, then fits; status 0   2 failures, survived
backward   the autograd thread runs out of memory                  fatal, live-memory or kept-tensors
ranks      two recorded processes on one device                    other-process, with the other's pid
expandable PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True and oom.py's fragments: no failure, perhaps a retry
async      PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync and a list: live-memory or growing-memory
driver     ctypes cuMemAlloc until it refuses, without a framework live-memory or growing-memory, status 1
"""

import os
import subprocess
import sys

GIB = 1 << 30


def append():
    import torch

    model = torch.nn.Sequential(*[torch.nn.Linear(8192, 8192, device="cuda") for _ in range(4)])
    history = []
    while True:
        history.append(model(torch.randn(8192, 8192, device="cuda")).square().mean())


def caught():
    import torch

    free, _ = torch.cuda.mem_get_info()
    size = 3 * free
    while True:
        try:
            x = torch.empty(size, dtype=torch.uint8, device="cuda")
            break
        except torch.OutOfMemoryError:
            size //= 2
    y = torch.ones(1000, device="cuda").sum().item()
    print("fits", size, x.numel(), y)


def backward():
    import torch

    free, _ = torch.cuda.mem_get_info()
    n = int((free * 0.3 / 4) ** 0.5)
    x = torch.randn(n, n, device="cuda", requires_grad=True)
    for step in range(3):
        with torch.cuda.nvtx.range("step"):
            y = (x.sin().cos()).sum()
            y.backward()


def ranks():
    if os.environ.get("SECOND"):
        import torch

        batches = [torch.empty(GIB, dtype=torch.uint8, device="cuda") for _ in range(200)]
        return
    import torch

    x = torch.empty(100 * GIB, dtype=torch.uint8, device="cuda")
    status = subprocess.call([sys.executable, __file__, "ranks"], env=dict(os.environ, SECOND="1"))
    sys.exit(status if x.numel() else 0)


def lists():
    import torch

    batches = []
    while True:
        batches.append(torch.empty(GIB, dtype=torch.uint8, device="cuda"))


def expandable():
    import torch

    free, _ = torch.cuda.mem_get_info()
    count = int(free / GIB) - 1
    whole = [torch.empty(GIB, dtype=torch.uint8, device="cuda") for _ in range(count)]
    whole.clear()
    passing, pins = [], []
    for _ in range(count):
        passing.append(torch.empty(900 << 20, dtype=torch.uint8, device="cuda"))
        pins.append(torch.empty(100 << 20, dtype=torch.uint8, device="cuda"))
    passing.clear()
    torch.empty(2 * GIB, dtype=torch.uint8, device="cuda")


def driver():
    import ctypes

    cu = ctypes.CDLL("libcuda.so.1")
    cu.cuInit(0)
    dev, ctx, p = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    cu.cuDeviceGet(ctypes.byref(dev), 0)
    cu.cuDevicePrimaryCtxRetain(ctypes.byref(ctx), dev)
    cu.cuCtxSetCurrent(ctx)
    while True:
        status = cu.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(GIB))
        if status:
            sys.exit("cuMemAlloc: %d" % status)


CASES = {"append": append, "caught": caught, "backward": backward, "ranks": ranks, "expandable": expandable, "async": lists, "driver": driver}
case = sys.argv[1]
if case == "expandable":
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
if case == "async":
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "backend:cudaMallocAsync"
CASES[case]()
