"""Trains the demo model: ternary by default, its float twin with --float (same data, same order).

    demo_corpus.py WORK && demo_tokens.py WORK       # once
    train_demo.py WORK [--float] [--steps N] [--decay D]

The run is in WORK/ternary or WORK/float: state.pt (every ten minutes and at the end or a SIGTERM),
log.jsonl. The same command goes on where state.pt stands. The learning rate rises for WARM_UP
steps, stays, and falls to zero over the last D of N steps; stable.pt is the state where the fall
begins, so a finished run is prolonged by `cp stable.pt state.pt` and a larger N. The weights turn
ternary between steps BLEND[0] and BLEND[1]. What a step sees depends on SEED and its number alone.
"""
import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # threads that spin starve the neighbours

import argparse
import json
import pathlib
import signal
import time

import numpy as np
import torch
import torch.nn.functional as F

from demo_model import SHAPE, Demo

SEED = 1
BATCH, LENGTH = 8, 512  # sequences and tokens a step
MUON_RATE, ADAM_RATE, WARM_UP = 4e-3, 2e-3, 100
BLEND = 200, 400
REPORT, VALIDATE, SAVE_SECONDS = 20, 200, 600
VALIDATION = 40         # windows of the held-out text during training


def windows(ids, count):
    """`count` windows of LENGTH + 1 tokens, evenly over the text."""
    starts = np.linspace(0, len(ids) - LENGTH - 1, count).astype(int)
    return torch.tensor(np.stack([ids[s:s + LENGTH + 1] for s in starts]).astype(np.int64))


def batch(ids, step):
    starts = np.random.default_rng([SEED, step]).integers(0, len(ids) - LENGTH, BATCH)
    return torch.tensor(np.stack([ids[s:s + LENGTH + 1] for s in starts]).astype(np.int64))


def rate(step, steps, decay):
    """The factor of the learning rates."""
    return min(1.0, (step + 1) / WARM_UP, (steps - step) / decay)


def optimizers(model):
    """Muon for the matrices of the layers, AdamW for the embedding and all that is small."""
    named = {key.replace(":", "."): p for key, p in model.tensors.items()}
    embedding = named.pop("token_embd.weight")
    matrices = [p for name, p in named.items() if name in model.rotated]
    small = [p for name, p in named.items() if name not in model.rotated]
    return [torch.optim.Muon(matrices, lr=MUON_RATE, weight_decay=0.1,
                             adjust_lr_fn="match_rms_adamw"),
            torch.optim.AdamW([{"params": [embedding], "weight_decay": 0.1},
                               {"params": small, "weight_decay": 0.0}],
                              lr=ADAM_RATE, betas=(0.9, 0.95), fused=True)]


class Run:
    def __init__(self, work, ternary, threads):
        torch.set_num_threads(threads)
        torch.manual_seed(SEED)
        self.folder = work / ("ternary" if ternary else "float")
        self.folder.mkdir(exist_ok=True)
        self.model, self.step, self.seconds = Demo(SHAPE, ternary), 0, 0.0
        self.optimizers = optimizers(self.model)
        self.train = np.fromfile(work / "train.u16", "<u2")
        self.held = windows(np.fromfile(work / "heldout.u16", "<u2"), VALIDATION)
        self.loss = torch.compile(self.plain_loss)
        if (self.folder / "state.pt").exists():
            self.load()

    def plain_loss(self, tokens, blend):
        w = self.model.dense(blend, torch.bfloat16)
        logits = self.model.logits(w, tokens[:, :-1]).flatten(0, 1)
        return F.cross_entropy(logits, tokens[:, 1:].flatten())

    def load(self):
        state = torch.load(self.folder / "state.pt")
        self.step, self.seconds = state["step"], state["seconds"]
        self.model.load_state_dict(state["model"])
        for optimizer, value in zip(self.optimizers, state["optimizers"]):
            optimizer.load_state_dict(value)

    def save(self, name="state.pt"):
        partial = self.folder / f"{name}.part"
        torch.save({"step": self.step, "seconds": self.seconds, "model": self.model.state_dict(),
                    "optimizers": [o.state_dict() for o in self.optimizers]}, partial)
        partial.rename(self.folder / name)

    def log(self, **entry):
        line = json.dumps({"step": self.step, "tokens": self.step * BATCH * LENGTH, **entry})
        with open(self.folder / "log.jsonl", "a") as file:
            file.write(line + "\n")
        print(line, flush=True)

    def validate(self):
        # With gradients: the compiled forward pass of training serves.
        losses = [self.loss(self.held[i:i + BATCH], torch.tensor(1.0)).item()
                  for i in range(0, VALIDATION, BATCH)]
        self.log(validation=round(sum(losses) / len(losses), 4), seconds=round(self.seconds))

    def advance(self, steps, decay):
        start, end = BLEND
        blend = torch.tensor(min(1.0, max(0.0, (self.step - start) / (end - start))))
        for optimizer, base in zip(self.optimizers, (MUON_RATE, ADAM_RATE)):
            for group in optimizer.param_groups:
                group["lr"] = base * rate(self.step, steps, decay)
        loss = self.loss(batch(self.train, self.step), blend)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad()
        self.step += 1
        return loss.item(), norm.item()

    def go(self, steps, decay):
        stopped = []
        signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))
        recent, saved, last = [], time.monotonic(), time.monotonic()
        while self.step < steps and not stopped:
            if self.step == steps - decay:
                self.save("stable.pt")
            loss, norm = self.advance(steps, decay)
            now = time.monotonic()
            self.seconds, last = self.seconds + now - last, now
            recent.append(loss)
            if self.step % REPORT == 0:
                self.log(loss=round(sum(recent) / len(recent), 4), norm=round(norm, 3),
                         rate=round(rate(self.step, steps, decay), 4), seconds=round(self.seconds))
                recent = []
            if self.step % VALIDATE == 0 or self.step == steps:
                self.validate()
            if now - saved > SAVE_SECONDS:
                self.save()
                saved = now
        self.save()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("work", type=pathlib.Path)
    parser.add_argument("--float", action="store_true")
    parser.add_argument("--steps", type=int, default=2700)
    parser.add_argument("--decay", type=int, default=600)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    Run(options.work, not options.float, options.threads).go(options.steps, options.decay)


if __name__ == "__main__":
    main()
