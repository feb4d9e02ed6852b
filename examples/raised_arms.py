"""Your own model, loss and dataset, trained with differential privacy: does somebody raise an arm above the shoulder?

    python examples/raised_arms.py [OUT]

The pictures are people of the embedded world, several of each; what is protected is a person with all of their pictures. It takes less than
a minute on two cores. Everything of Halfmask is in `main`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import halfmask
from halfmask.data.figures import JOINT_NAMES
from halfmask.data.figures_records import figures_records


class Pictures(torch.utils.data.Dataset):
    """Any dataset with a length and an item for each index will do; no transform may be random."""

    def __init__(self, population: str, count: int):
        people = figures_records(population, count, size=(64, 48))
        self.images = torch.tensor(people.images[:]).float() / 127.5 - 1
        self.subjects = people.subjects
        height = {name: torch.tensor(people.joints[:, joint, 1]) for joint, name in enumerate(JOINT_NAMES)}
        arms = [height[f"{side}_wrist"] < height[f"{side}_shoulder"] for side in ("left", "right")]
        self.labels = (arms[0] | arms[1]).long()

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> dict[str, object]:
        return {"image": self.images[index], "raised": self.labels[index], "subject": f"{self.subjects[index]}"}


def network() -> nn.Module:
    """Group normalisation, because batch normalisation would mix people."""
    return nn.Sequential(
        *(nn.Conv2d(3, 16, 5, 2, 2), nn.GroupNorm(4, 16), nn.ReLU()),
        *(nn.Conv2d(16, 32, 3, 2, 1), nn.GroupNorm(4, 32), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d((4, 3)), nn.Flatten(), nn.Linear(32 * 12, 2)),
    )


def loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """One value per record."""
    return F.cross_entropy(model(batch["image"]), batch["raised"], reduction="none")


def accuracy(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """One value per record, too."""
    return (model(batch["image"]).argmax(1) == batch["raised"]).float()


def main(out: str = "runs/raised-arms") -> object:
    torch.manual_seed(0)
    test = Pictures("test", 300)
    run = halfmask.train(
        network(),
        loss,
        private=Pictures("private", 1500),
        unit="subject",
        epsilon=8.0,
        delta=1e-5,
        clip_norm=1.0,
        batch=100,
        epochs=8,
        optimiser={"name": "adamw", "learning_rate": 3e-3},
        test=test,
        score=accuracy,
        out=out,
    )
    audit = run.audit()
    common = float(torch.tensor([test[i]["raised"] for i in range(len(test))]).float().mean())
    print(f"accuracy {run.scores['accuracy']:.3f} (always saying the same: {max(common, 1 - common):.3f})")
    print(f"ε = {run.certificate['epsilon']['zero-out']:.3f} for one {run.certificate['unit']} of {run.certificate['units']}")
    print(f"audit of the loss: {'passed' if audit['passed'] else 'FAILED'}; certificate: {Path(run.folder) / 'certificate.md'}")
    return run


if __name__ == "__main__":
    main(*sys.argv[1:2])
