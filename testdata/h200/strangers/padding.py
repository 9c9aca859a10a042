"""Fine-tune a small causal language model on a corpus of support conversations.

Documents are shuffled once and batched eight at a time; every batch is padded
on the right to its longest document.
"""
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

VOCAB = 128_256
DIM = 1024
HEADS = 16
LAYERS = 4
MAX_LEN = 16_384
BATCH_SIZE = 8
STEPS = 40
IGNORE = -100


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1 = nn.LayerNorm(DIM)
        self.qkv = nn.Linear(DIM, 3 * DIM, bias=False)
        self.proj = nn.Linear(DIM, DIM, bias=False)
        self.norm2 = nn.LayerNorm(DIM)
        self.up = nn.Linear(DIM, 4 * DIM, bias=False)
        self.down = nn.Linear(4 * DIM, DIM, bias=False)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).chunk(3, dim=-1)
        q = q.view(b, t, HEADS, -1).transpose(1, 2)
        k = k.view(b, t, HEADS, -1).transpose(1, 2)
        v = v.view(b, t, HEADS, -1).transpose(1, 2)
        # Right padding and a causal mask: no real token ever sees a pad token.
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, DIM))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class CausalLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, DIM)
        self.pos = nn.Embedding(MAX_LEN, DIM)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(DIM)
        nn.init.normal_(self.tok.weight, std=0.02)
        nn.init.normal_(self.pos.weight, std=0.02)

    def forward(self, ids):
        x = self.tok(ids) + self.pos(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.tok.weight)  # tied output head


def read_corpus(seed=42):
    """Token ids of every document: mostly chats, now and then a call transcript."""
    rng = random.Random(seed)
    gen = torch.Generator().manual_seed(seed)
    docs = []
    for _ in range(STEPS * BATCH_SIZE):
        if rng.random() < 0.004:
            length = rng.randint(14_000, 16_000)
        else:
            length = rng.randint(200, 1_500)
        docs.append(torch.randint(3, VOCAB, (length,), generator=gen))
    return docs


def batches(docs):
    for start in range(0, len(docs), BATCH_SIZE):
        yield collate(docs[start:start + BATCH_SIZE])


def collate(docs):
    docs = [d[:MAX_LEN] for d in docs]
    longest = max(len(d) for d in docs)
    ids = torch.zeros(len(docs), longest, dtype=torch.long)
    labels = torch.full((len(docs), longest), IGNORE, dtype=torch.long)
    for row, doc in enumerate(docs):
        ids[row, :len(doc)] = doc
        labels[row, :len(doc)] = doc
    return ids[:, :-1].contiguous(), labels[:, 1:].contiguous()


def compute_loss(model, ids, labels):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        logits = model(ids)
    # Loss in full precision for stability.
    return F.cross_entropy(logits.float().view(-1, VOCAB), labels.view(-1),
                           ignore_index=IGNORE)


def train_step(model, optimizer, ids, labels):
    with torch.cuda.nvtx.range("forward"):
        loss = compute_loss(model, ids, labels)
    with torch.cuda.nvtx.range("backward"):
        loss.backward()
    with torch.cuda.nvtx.range("optimizer"):
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return loss.item()


def main():
    torch.manual_seed(0)
    device = torch.device("cuda")
    with device:
        model = CausalLM()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for step, (ids, labels) in enumerate(batches(read_corpus())):
        with torch.cuda.nvtx.range(f"step {step}"):
            loss = train_step(model, optimizer, ids.to(device), labels.to(device))
        print(f"step {step:3d}  loss {loss:7.3f}", flush=True)
    print("done")


if __name__ == "__main__":
    main()
