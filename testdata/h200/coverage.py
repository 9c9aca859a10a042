"""Programs that take GPU memory in the ways there are, each with a result to compare.

    gpurec run -o graphs.gpurec -- python3 coverage.py torch-graphs

Prints one line of JSON: a checksum of what was computed, equal from run to run,
and the framework's own number of bytes, where it has one, at the moment when
the program holds most. coverage.sh compares with a run without gpurec.
"""

import argparse
import json
import os
import sys
import time

MIB = 1 << 20


def hold():
    """Long enough for NVML's samples to see what is held."""
    time.sleep(0.1)


def torch_result(torch, x):
    torch.cuda.synchronize()
    hold()
    return {"sum": float(x.double().sum()).hex(), "own": torch.cuda.memory_allocated()}


def torch_work(torch, steps=4):
    """A few steps of a small network, in a fixed order of sums."""
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    model = torch.nn.Sequential(*[torch.nn.Linear(2048, 2048) for _ in range(8)]).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    x = torch.randn(1024, 2048).cuda()
    for _ in range(steps):
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    with torch.no_grad():
        return model(x)


def torch_plain():
    import torch

    return torch_result(torch, torch_work(torch))


def torch_graphs():
    import torch

    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Linear(2048, 2048) for _ in range(8)]).cuda()
    x = torch.randn(1024, 2048).cuda()
    with torch.no_grad():
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                model(x)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = model(x)
        for i in range(5):
            x.mul_(0.5)
            graph.replay()
    return torch_result(torch, y)


def torch_compile():
    import torch

    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.GELU()) for _ in range(3)]).cuda()
    x = torch.randn(512, 1024).cuda()
    fast = torch.compile(model, mode="reduce-overhead")
    with torch.no_grad():
        for _ in range(5):
            torch.compiler.cudagraph_mark_step_begin()
            y = fast(x).clone()
    return torch_result(torch, y)


def torch_pluggable():
    """An allocator of the program's own, over cudaMalloc, built by coverage.sh."""
    import torch

    own = torch.cuda.memory.CUDAPluggableAllocator(os.environ["PLUGGABLE"], "pluggable_malloc", "pluggable_free")
    torch.cuda.memory.change_current_allocator(own)
    y = torch_work(torch)
    torch.cuda.synchronize()
    hold()
    return {"sum": float(y.double().sum()).hex(), "own": None}


def torch_profiler():
    import torch
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], profile_memory=True) as p:
        y = torch_work(torch)
        torch.cuda.synchronize()
    kernels = sum(1 for e in p.events() if e.device_type == torch.autograd.DeviceType.CUDA)
    memory = sum(1 for e in p.events() if getattr(e, "device_memory_usage", 0))
    result = torch_result(torch, y)
    result["profiled"] = "kernels and memory" if kernels and memory else "kernels %d, memory %d" % (kernels, memory)
    return result


def cupy_work(cp):
    x = cp.arange(4096 * 4096, dtype=cp.float32).reshape(4096, 4096) % 97
    parts = [x * (i + 1) for i in range(3)]
    y = (parts[0] @ parts[1].T)[:64] + parts[2][:64]
    cp.cuda.Device().synchronize()
    hold()
    return {"sum": float(y.astype(cp.float64).sum()).hex()}


def cupy_pool():
    import cupy as cp

    result = cupy_work(cp)
    result["own"] = cp.get_default_memory_pool().used_bytes()
    return result


def cupy_async():
    import cupy as cp

    cp.cuda.set_allocator(cp.cuda.MemoryAsyncPool().malloc)
    return cupy_work(cp)


def cupy_managed():
    import cupy as cp

    cp.cuda.set_allocator(cp.cuda.MemoryPool(cp.cuda.malloc_managed).malloc)  # under 400 MiB
    return cupy_work(cp)


def jax_work():
    import jax
    import jax.numpy as jnp

    x = jnp.arange(4096 * 4096, dtype=jnp.float32).reshape(4096, 4096) % 97
    y = jax.jit(lambda a: (a @ a.T + a) / 4096)(x)
    y.block_until_ready()
    hold()
    stats = jax.local_devices()[0].memory_stats() or {}
    return {"sum": float(y[:64].astype(jnp.float32).sum()).hex(), "own": stats.get("bytes_in_use")}


def jax_on_demand():
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    return jax_work()


def jax_preallocated():
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "true"
    os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"] = "0.10"
    return jax_work()


def jax_platform():
    """Each array by the driver itself."""
    os.environ["XLA_PYTHON_CLIENT_ALLOCATOR"] = "platform"
    return jax_work()


PROGRAMS = {
    "torch": torch_plain,
    "torch-expandable": torch_plain,
    "torch-async": torch_plain,
    "torch-graphs": torch_graphs,
    "torch-compile": torch_compile,
    "torch-pluggable": torch_pluggable,
    "torch-profiler": torch_profiler,
    "cupy-pool": cupy_pool,
    "cupy-async": cupy_async,
    "cupy-managed": cupy_managed,
    "jax-on-demand": jax_on_demand,
    "jax-preallocated": jax_preallocated,
    "jax-platform": jax_platform,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("program", choices=PROGRAMS)
    name = parser.parse_args().program
    if name == "torch-expandable":
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    if name == "torch-async":
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "backend:cudaMallocAsync"
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # what deterministic algorithms ask for
    print(json.dumps(PROGRAMS[name](), sort_keys=True), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
