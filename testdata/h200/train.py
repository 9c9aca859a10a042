"""A small transformer's training, and PyTorch's own numbers at named moments.

    gpurec run -o train.gpurec -- python3 train.py --steps 200 >train.jsonl

Each moment is an NVTX mark "moment:NAME" in the trace and a line of JSON on
stdout with what torch.cuda says there; compare.py joins the two. Where PyTorch's
one peak counter is reset, the mark "peak-reset" stands in the trace, so that
max_memory_allocated can be followed.

Runs with any allocator of PyTorch's: set PYTORCH_CUDA_ALLOC_CONF to
expandable_segments:True or backend:cudaMallocAsync. The latter keeps no
counters, so --own allocates tensors one by one and counts them itself.
"""

import argparse
import json
import os
import sys

import torch
from torch import nn
from torch.cuda import nvtx
from torch.nn import functional as F

VOCABULARY, WIDTH, HEADS, LAYERS, LENGTH, BATCH = 8192, 512, 8, 4, 256, 16


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        b, n, _ = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-2, -1)) * (WIDTH // HEADS) ** -0.5
        mask = torch.ones(n, n, dtype=torch.bool, device=x.device).triu(1)
        weights = scores.masked_fill(mask, float("-inf")).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).reshape(b, n, WIDTH))


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(WIDTH), Attention()
        self.norm2, self.mlp = nn.LayerNorm(WIDTH), MLP()

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Transformer(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.places = nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(*[Block() for _ in range(layers)])
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, ids):
        places = torch.arange(ids.shape[1], device=ids.device)
        return self.head(self.blocks(self.tokens(ids) + self.places(places)))


def moment(name, own=None):
    """Marks this moment in the trace and prints what PyTorch says of it."""
    torch.cuda.synchronize()
    nvtx.mark("moment:" + name)
    stats = torch.cuda.memory_stats()
    row = {
        "moment": name,
        "memory_allocated": torch.cuda.memory_allocated(),
        "max_memory_allocated": torch.cuda.max_memory_allocated(),
        "memory_reserved": torch.cuda.memory_reserved(),
        "allocated": stats.get("allocation.all.allocated"),
        "freed": stats.get("allocation.all.freed"),
        "segments_allocated": stats.get("segment.all.allocated"),
    }
    if own is not None:
        row.update(own)
    print(json.dumps(row), flush=True)


def peak_reset():
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    nvtx.mark("peak-reset")


def batch(generator):
    ids = torch.randint(VOCABULARY, (BATCH, LENGTH + 1), generator=generator)
    return ids.cuda()


def loss_of(model, ids):
    logits = model(ids[:, :-1])
    return F.cross_entropy(logits.reshape(-1, VOCABULARY), ids[:, 1:].reshape(-1))


def train(steps, layers):
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    model = Transformer(layers).cuda()
    moment("model")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for step in range(steps):
        nvtx.range_push("step")
        with nvtx.range("load"):
            ids = batch(generator)
        with nvtx.range("forward"):
            loss = loss_of(model, ids)
        if step in (0, steps // 2):
            moment("forward-%d" % step)
        with nvtx.range("backward"):
            loss.backward()
        if step in (0, steps // 2):
            moment("backward-%d" % step)
        with nvtx.range("optimizer"):
            optimizer.step()
            optimizer.zero_grad()
        nvtx.range_pop()
        if step == 0 or (step + 1) % max(1, steps // 5) == 0:
            moment("step-%d" % step)
    print(json.dumps({"loss": loss.item()}), flush=True)
    del loss, ids, optimizer
    moment("trained")
    evaluate(model, generator)
    del model
    moment("dropped")
    torch.cuda.empty_cache()
    moment("emptied")


def evaluate(model, generator):
    """Overlapping ranges, and a peak of their own after PyTorch's counter is reset."""
    outer = nvtx.range_start("evaluation")
    with torch.no_grad():
        for i in range(3):
            inner = nvtx.range_start("evaluation-batch")
            peak_reset()
            loss_of(model, batch(generator)[: 4 * (i + 1)])
            moment("evaluation-%d" % i)
            nvtx.range_end(inner)
    nvtx.range_end(outer)


def own_tensors(count):
    """Tensors made one by one: the script's own count of what it took and gave back."""
    generator = torch.Generator().manual_seed(2)
    sizes = torch.randint(1, 4 << 20, (count,), generator=generator).tolist()
    own = {"own_allocated": 0, "own_freed": 0, "own_bytes": 0, "own_live": 0}
    kept = []
    torch.cuda.init()
    moment("own-start", own)
    for i, size in enumerate(sizes):
        kept.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
        own["own_allocated"] += 1
        own["own_bytes"] += size
        if i % 3 == 2:
            own["own_bytes"] -= kept.pop(i % len(kept)).numel()
            own["own_freed"] += 1
        own["own_live"] = len(kept)
        if (i + 1) % (count // 5) == 0:
            moment("own-%d" % i, own)
    own.update(own_freed=own["own_freed"] + len(kept), own_bytes=0, own_live=0)
    kept.clear()
    moment("own-end", own)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--layers", type=int, default=LAYERS)
    parser.add_argument("--own", type=int, default=0, metavar="N", help="first make N tensors and count them")
    args = parser.parse_args()
    print(
        json.dumps(
            {
                "program": "train.py",
                "torch": torch.__version__,
                "backend": torch.cuda.get_allocator_backend(),
                "conf": os.environ.get("PYTORCH_CUDA_ALLOC_CONF", ""),
                "device": torch.cuda.get_device_name(),
                "steps": args.steps,
            }
        ),
        flush=True,
    )
    if args.own:
        own_tensors(args.own)
    if args.steps:
        train(args.steps, args.layers)
    return 0


if __name__ == "__main__":
    sys.exit(main())
