"""A model of one's own: `halfmask.train` and a `halfmask.Private` loop beside Opacus' `PrivacyEngine`, in one run.

    pip install opacus && python benchmarks/own.py [--threads 1] [--rounds 5]

The same network, data, expected batch and number of steps for all; what differs is who clips, noises and keeps accounts. Steps are timed in
turn, a stretch of each at a time, and the least of all rounds counts; times of whole calls include reading every item twice, recognising
people, the ledger and the certificate, which Opacus does not do.
"""

from __future__ import annotations

import argparse
import itertools
import os
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

PEOPLE, BATCH, STEPS = 2000, 64, 8
SIDE = 32


class Pictures(torch.utils.data.Dataset):
    def __init__(self) -> None:
        random = torch.Generator().manual_seed(0)
        self.x = torch.rand(PEOPLE, 3, SIDE, SIDE, generator=random)
        self.y = torch.randint(10, (PEOPLE,), generator=random)

    def __len__(self) -> int:
        return PEOPLE

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.x[index], self.y[index]


class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.first, self.second = nn.Conv2d(inputs, outputs, 3, stride, 1), nn.Conv2d(outputs, outputs, 3, 1, 1)
        self.norms = nn.ModuleList(nn.GroupNorm(8, outputs) for _ in range(2))
        self.skip = nn.Conv2d(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.relu(self.norms[0](self.first(x)))
        return F.relu(self.norms[1](self.second(hidden)) + self.skip(x))


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        Block(3, 32, 1), Block(32, 64, 2), Block(64, 128, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10)
    ).eval()


def loss(model: nn.Module, batch: Any) -> Tensor:
    return F.cross_entropy(model(batch[0]), batch[1], reduction="none")


def plan(folder: Path) -> dict[str, Any]:
    epochs = (STEPS * 100) * BATCH / PEOPLE
    return {
        "private": Pictures(),
        "unit": "record",
        "epsilon": 3.0,
        "delta": 1e-5,
        "clip_norm": 1.0,
        "batch": BATCH,
        "epochs": epochs,
        "settings": {"even_so": True},
        "out": folder,
    }


class Ours:
    name = "halfmask.Private"

    def __init__(self, folder: Path):
        import halfmask

        self.model = network()
        self.private = halfmask.Private(self.model, loss, **plan(folder))
        self.optimiser = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def steps(self, count: int) -> None:
        for _ in range(count):
            self.private.step()
            self.optimiser.step()


class Plain:
    name = "plain PyTorch"

    def __init__(self, folder: Path):
        self.model, self.data = network(), Pictures()
        self.optimiser = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def steps(self, count: int) -> None:
        for _ in range(count):
            chosen = torch.randint(PEOPLE, (BATCH,)).tolist()
            items = [self.data[row] for row in chosen]
            batch = tuple(torch.stack(part) for part in zip(*items, strict=True))
            self.optimiser.zero_grad()
            loss(self.model, batch).mean().backward()
            self.optimiser.step()


class Opacus:
    def __init__(self, folder: Path, mode: str = "hooks"):
        from opacus import PrivacyEngine

        self.name = f"Opacus ({mode})"
        model = network().train()
        optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
        loader = torch.utils.data.DataLoader(Pictures(), batch_size=BATCH)
        criterion = nn.CrossEntropyLoss()
        ghost = {"criterion": criterion, "grad_sample_mode": "ghost"} if mode == "ghost" else {}
        made = PrivacyEngine().make_private(
            module=model, optimizer=optimiser, data_loader=loader, noise_multiplier=1.0, max_grad_norm=1.0, poisson_sampling=True, **ghost
        )
        self.model, self.optimiser = made[0], made[1]
        self.criterion, self.loader = (made[2], made[3]) if mode == "ghost" else (criterion, made[2])
        self.batches = iter(self.loader)

    def steps(self, count: int) -> None:
        for _ in range(count):
            batch = next(self.batches, None)
            if batch is None:
                self.batches = iter(self.loader)
                batch = next(self.batches)
            self.optimiser.zero_grad()
            self.criterion(self.model(batch[0]), batch[1]).backward()
            self.optimiser.step()


class Trained:
    """`halfmask.train`, whose steps are its own: timed from step to step by what it reports."""

    name = "halfmask.train"

    def __init__(self, folder: Path):
        self.folder = folder

    def seconds(self, steps: int) -> tuple[float, float]:
        """Of a step, the least of all; and of the whole call."""
        import halfmask
        from halfmask.training.progress import Progress

        times: list[float] = []

        class Clock(Progress):
            def step(self, *args: Any) -> None:
                times.append(time.perf_counter())

        settings = plan(self.folder) | {"epochs": steps * BATCH / PEOPLE}
        start = time.perf_counter()
        halfmask.train(network(), loss, progress=Clock(), optimiser={"name": "sgd", "learning_rate": 0.01}, **settings)
        whole = time.perf_counter() - start
        return min(later - earlier for earlier, later in itertools.pairwise(times[:-1])), whole


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HALFMASK_HOME"] = f"{folder}/home"
        trained, whole = Trained(Path(folder) / "train").seconds(4 * STEPS)
        makers: list[Any] = [Plain(Path(folder)), Ours(Path(folder) / "private")]
        for mode in ("hooks", "ghost"):
            try:
                makers.append(Opacus(Path(folder), mode))
            except ImportError:
                print("Opacus is not installed: pip install opacus")
                break
        least = {maker.name: float("inf") for maker in makers}
        for _ in range(arguments.rounds + 1):
            for maker in makers:
                start = time.perf_counter()
                maker.steps(STEPS)
                least[maker.name] = min(least[maker.name], (time.perf_counter() - start) / STEPS)
        plain = least["plain PyTorch"]
        rounds = f"least of {arguments.rounds + 1} rounds of {STEPS} steps"
        print(f"{arguments.threads} threads, {PEOPLE} records, expected batch {BATCH}, {rounds}")
        for name, seconds in (least | {"halfmask.train": trained}).items():
            print(f"{name:20} {1000 * seconds:8.1f} ms a step   {seconds / plain:5.2f} of plain")
        print(f"halfmask.train, the whole call with {4 * STEPS} steps: {whole:.1f} s")


if __name__ == "__main__":
    main()
