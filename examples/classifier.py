"""Your own model, loss and dataset, trained with differential privacy: an image classifier that protects people, not pictures.

    python examples/classifier.py [OUT]

Everybody has drawn a few shapes, each person in a colour of their own, and the classifier tells discs from crosses. What is protected is a
person with all of their drawings. Everything of Halfmask is in `main`; it takes well below a minute.
"""

from __future__ import annotations

import sys

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import halfmask

SIDE = 20


class Drawings(torch.utils.data.Dataset):
    """Any dataset with a length and an item for each index will do; nothing in it may change from one reading to the next."""

    def __init__(self, people: int, drawings: int, first: int = 0):
        random = torch.Generator().manual_seed(first)
        count = people * drawings
        self.person = first + torch.arange(people).repeat_interleave(drawings)
        self.label = torch.randint(2, (count,), generator=random)
        colour = torch.rand(people, 3, generator=random).repeat_interleave(drawings, 0)
        centre = SIDE / 2 + 2 * torch.randn(count, 2, generator=random)
        grid = torch.stack(torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij"))
        away = (grid[None] - centre[:, :, None, None]).abs()
        disc, cross = away.square().sum(1).sqrt() < 4.5, (away.min(1).values < 1.5) & (away.max(1).values < 6)
        shape = torch.where(self.label[:, None, None] == 1, disc, cross).float()[:, None]
        noise = 0.1 * torch.randn(count, 3, SIDE, SIDE, generator=random)
        self.image = (0.2 + shape * (0.3 + 0.5 * colour[:, :, None, None]) + noise).clamp(0, 1)

    def __len__(self) -> int:
        return len(self.label)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"image": self.image[index], "disc": self.label[index], "person": self.person[index]}


def network() -> nn.Module:
    """Group normalisation, because batch normalisation would mix people."""
    first = (nn.Conv2d(3, 16, 5, 2, 2), nn.GroupNorm(4, 16), nn.ReLU())
    second = (nn.Conv2d(16, 16, 3, 2, 1), nn.GroupNorm(4, 16), nn.ReLU())
    return nn.Sequential(*first, *second, nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(144, 2))


def loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """One value per record."""
    return F.cross_entropy(model(batch["image"]), batch["disc"], reduction="none")


def accuracy(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """One value per record, too."""
    return (model(batch["image"]).argmax(1) == batch["disc"]).float()


def main(out: str = "runs/classifier") -> None:
    """Train, score, certify and audit."""
    torch.manual_seed(0)
    run = halfmask.train(
        network(),
        loss,
        private=Drawings(people=800, drawings=2),
        unit="person",
        epsilon=3.0,
        delta=1e-5,
        clip_norm=1.0,
        batch=200,
        epochs=20,
        optimiser={"name": "adamw", "learning_rate": 5e-3},
        test=Drawings(people=100, drawings=2, first=10_000),
        score=accuracy,
        out=out,
    )
    print(f"accuracy {run.scores['accuracy']:.3f}, where a guess has 0.5")
    print(f"ε = {run.certificate['epsilon']['zero-out']:.3f} for one {run.certificate['unit']} of {run.certificate['units']}")
    print(f"the mechanism with this loss and network: {'passed' if run.audit()['passed'] else 'FAILED'}")
    print(f"for your privacy officer: {run.folder / 'certificate.md'}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
