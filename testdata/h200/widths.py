"""A small model's training, one layer of which can be made wider: two versions to compare.

    gpurec run -o a.gpurec -- python3 widths.py
    gpurec run -o b.gpurec -- python3 widths.py --hidden 4096
    gpuanalyze diff a.gpurec b.gpurec
"""

import argparse

import torch
from torch import nn
from torch.cuda import nvtx


class Model(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.first = nn.Linear(1024, 1024)
        self.wide = nn.Linear(1024, hidden)
        self.narrow = nn.Linear(hidden, 1024)
        self.last = nn.Linear(1024, 10)

    def forward(self, x):
        x = torch.relu(self.first(x))
        x = torch.relu(self.wide(x))
        x = torch.relu(self.narrow(x))
        return self.last(x)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--hidden", type=int, default=2048)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--leak", action="store_true", help="keep every step's output")
    args = parser.parse_args()
    torch.manual_seed(0)
    model = Model(args.hidden).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    kept = []
    for _ in range(args.steps):
        with nvtx.range("step"):
            x = torch.randn(512, 1024, device="cuda")
            with nvtx.range("forward"):
                out = model(x)
                loss = out.square().mean()
            with nvtx.range("backward"):
                loss.backward()
            with nvtx.range("optimizer"):
                optimizer.step()
                optimizer.zero_grad()
            if args.leak:
                kept.append(out.detach())
    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
