"""A small training that ends badly, and PyTorch's own number of the moment before.

    gpurec run -o killed.gpurec -- python3 killed.py killed-by-itself NUMBER

NUMBER is a file that gets torch.cuda.memory_allocated() as it was last; a kill
cannot take it back. The ends:

    killed-by-itself   SIGKILL in the middle of a backward pass, from a hook of one layer
    killed-from-outside  trains until somebody kills it, and writes NUMBER once a step
    out-of-memory      asks for more than the device has and does not catch it
"""

import os
import signal
import sys

import torch
from torch import nn


def write(path, number):
    with open(path, "w") as f:
        f.write(str(number))


def train(path, steps, at_step=None):
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Sequential(nn.Linear(1024, 1024), nn.GELU()) for _ in range(8)]).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(steps):
        with torch.cuda.nvtx.range("step"):
            x = torch.randn(256, 1024, device="cuda")
            loss = model(x).square().mean()
            if at_step is not None:
                at_step(step, model, loss)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        write(path, torch.cuda.memory_allocated())


def die_in_backward(path):
    def hook(*_):
        write(path, torch.cuda.memory_allocated())
        os.kill(os.getpid(), signal.SIGKILL)

    def at_step(step, model, loss):
        if step == 5:
            model[3].register_full_backward_pre_hook(hook)

    train(path, 10, at_step)


def out_of_memory(path):
    def hook(kind, value, traceback):
        write(path, torch.cuda.memory_allocated())
        sys.__excepthook__(kind, value, traceback)

    def at_step(step, model, loss):
        if step == 5:
            torch.empty(1 << 40, dtype=torch.uint8, device="cuda")

    sys.excepthook = hook
    train(path, 10, at_step)


def main():
    how, path = sys.argv[1:]
    print("training", flush=True)
    if how == "killed-by-itself":
        die_in_backward(path)
    elif how == "out-of-memory":
        out_of_memory(path)
    else:
        train(path, 1_000_000)


main()
