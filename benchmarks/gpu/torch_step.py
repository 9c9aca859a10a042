"""A worker: a training step of a transformer of 12 layers, NVTX ranges on.

The model and its steps are testdata/h200/train.py's, deeper: attention written
out, AdamW, and one mask, score, weight and activation tensor after the other, as
training programs that nobody has tuned allocate them.
"""

import time

import torch
from torch import nn
from torch.cuda import nvtx
from torch.nn import functional as F

from worker import serve

VOCABULARY, WIDTH, HEADS, LAYERS, LONGEST = 8192, 768, 12, 12, 512
SIZES = {"device-bound": (8, 512), "host-bound": (1, 64)}  # batch, length


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def attention(self, x):
        b, n, _ = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-2, -1)) * (WIDTH // HEADS) ** -0.5
        mask = torch.ones(n, n, dtype=torch.bool, device=x.device).triu(1)
        weights = scores.masked_fill(mask, float("-inf")).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).reshape(b, n, WIDTH))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LONGEST, WIDTH)
        self.blocks = nn.Sequential(*[Block() for _ in range(LAYERS)])
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, ids):
        places = torch.arange(ids.shape[1], device=ids.device)
        return self.head(self.blocks(self.tokens(ids) + self.places(places)))


def main():
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = True
    model = Transformer().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    inputs = {
        name: torch.randint(VOCABULARY, (batch, length + 1), device="cuda") for name, (batch, length) in SIZES.items()
    }

    def step(ids):
        with nvtx.range("step"):
            with nvtx.range("forward"):
                logits = model(ids[:, :-1])
                loss = F.cross_entropy(logits.reshape(-1, VOCABULARY), ids[:, 1:].reshape(-1))
            with nvtx.range("backward"):
                loss.backward()
            with nvtx.range("optimizer"):
                optimizer.step()
                optimizer.zero_grad()

    def steps(size, count):
        """ns a step, of so many without a wait in between, after one that is not counted."""
        ids = inputs[size]
        step(ids)
        torch.cuda.synchronize()
        begin = time.perf_counter_ns()
        for _ in range(int(count)):
            step(ids)
        torch.cuda.synchronize()
        return (time.perf_counter_ns() - begin) / int(count)

    def allocations(size):
        """Pool allocations of one step."""
        before = torch.cuda.memory_stats()["allocation.all.allocated"]
        step(inputs[size])
        torch.cuda.synchronize()
        return torch.cuda.memory_stats()["allocation.all.allocated"] - before

    def history(which):
        if which == "off":
            torch.cuda.memory._record_memory_history(enabled=None)
        else:
            torch.cuda.memory._record_memory_history(enabled="all", context="all", stacks=which, max_entries=100000)

    for size in SIZES:
        steps(size, 5)
    serve({"steps": steps, "allocations": allocations, "history": history})


main()
