"""Distributed training on two GPUs, and what CUDA and PyTorch say at named moments.

    gpurec run -o ddp.gpurec -- torchrun --nproc-per-node 2 ddp.py MOMENTS

MOMENTS-RANK.jsonl gets a line for each moment, when both ranks stand still;
rank 0 prints the loss, which is equal from run to run.
"""

import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main():
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    moments = open("%s-%d.jsonl" % (sys.argv[1], rank), "w")

    def moment(name):
        torch.cuda.synchronize()
        dist.barrier(device_ids=[rank])
        torch.cuda.synchronize()
        time.sleep(0.05)
        free, total = torch.cuda.mem_get_info()
        row = {
            "moment": name,
            "rank": rank,
            "pid": os.getpid(),
            "uuid": "GPU-" + str(torch.cuda.get_device_properties(rank).uuid).removeprefix("GPU-"),
            "time": time.monotonic_ns(),
            "free": free,
            "allocated": torch.cuda.memory_allocated(),
            "max": torch.cuda.max_memory_allocated(),
            "reserved": torch.cuda.memory_reserved(),
        }
        moments.write(json.dumps(row) + "\n")
        moments.flush()
        time.sleep(0.15)  # NVML is read meanwhile, and nobody allocates
        dist.barrier(device_ids=[rank])

    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    torch.cuda.init()
    x = torch.ones(1, device="cuda")
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    moment("group")
    dist.all_reduce(x)
    moment("all-reduce")
    width = 1024
    model = nn.Sequential(*[nn.Linear(width, width) for _ in range(12)]).cuda()
    model = DistributedDataParallel(model, device_ids=[rank])
    optimizer = torch.optim.AdamW(model.parameters())
    moment("model")
    generator = torch.Generator().manual_seed(rank)
    for step in range(10):
        with torch.cuda.nvtx.range("step"):
            rows = 256 * (1 + rank)  # rank 1 needs more: the ranks differ
            loss = model(torch.randn(rows, width, generator=generator).cuda()).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        if step in (0, 9):
            moment("step-%d" % step)
    dist.all_reduce(loss.detach())
    if rank == 0:
        print("loss", loss.item().hex(), flush=True)
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    sys.exit(main())
