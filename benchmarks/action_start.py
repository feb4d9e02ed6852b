"""What a public start of the action task tells of public clips that it was not trained on: `python -m benchmarks.action_start WEIGHTS`.

WEIGHTS is what `halfmask pretrain action/pretrain` wrote, with its head. Whole clips, and people cut out of their rooms; the movement, and
the kind of place, each summed over the classes that share it. `--skip` must be at least as large as `data.public` was in pre-training.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from halfmask.data.clips import ClipRecords
from halfmask.data.records import Datasets
from halfmask.models.checkpoints import read_state
from halfmask.models.mvit import MViT
from halfmask.tasks.action import prepared
from halfmask.tasks.action_pretraining import movements_of
from halfmask.tasks.base import task_named
from halfmask.training.config import build_config, load_recipe
from halfmask.views import make_view


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("weights", type=Path)
    parser.add_argument("--side", type=int, default=96)
    parser.add_argument("--skip", type=int, default=20_000)
    parser.add_argument("--clips", type=int, default=480)
    options = parser.parse_args()
    # Public clips that follow those of pre-training: other people, in other rooms.
    settings = [f"model.side={options.side}", f"data.public={options.clips}", f"data.public_skip={options.skip}"]
    config = build_config(load_recipe("action/pretrain"), {}, settings)
    task = task_named("action")(config)
    judged, _ = task.load_public()
    assert isinstance(judged, ClipRecords)
    model = task.build(Datasets(judged, None, None, "figures", judged.prints)).eval()
    assert isinstance(model, MViT)
    model.load_state_dict(read_state(options.weights), strict=False)
    movements = movements_of(judged.classes)
    places = torch.tensor(_places(judged.classes))
    assert movements is not None
    view = make_view("tokens", {"edges": "cleared"})
    found: dict[str, list[Tensor]] = {"whole clips": [], "people cut out": []}
    labels = []
    for start in range(0, len(judged), 40):
        rows = np.arange(start, min(start + 40, len(judged)))
        batch, hidden = judged.batch(rows), judged.truth.rows(rows)["hidden"]
        seen = [view.of({"clip": clip, "hidden": mask}).public for clip, mask in zip(batch["clip"].numpy(), hidden, strict=True)]
        clips, tokens = (torch.from_numpy(np.stack([one[name] for one in seen])) for name in ("clip", "tokens"))
        with torch.no_grad():
            found["whole clips"].append(model(prepared(batch["clip"])))
            found["people cut out"].append(model(prepared(clips), tokens))
        labels.append(batch["label"])
    label = torch.cat(labels)
    print(f"{len(label)} public clips, {int(movements.max()) + 1} movements, {int(places.max()) + 1} kinds of place")
    for name, scores in found.items():
        told = torch.cat(scores)
        print(f"{name:16s} movement {_share(told, label, movements):5.1f} %   place {_share(told, label, places):5.1f} %")


def _places(classes: tuple[str, ...] | list[str]) -> list[int]:
    names = [name.partition(" (")[2] for name in classes]
    order = list(dict.fromkeys(names))
    return [order.index(name) for name in names]


def _share(scores: Tensor, label: Tensor, group: Tensor) -> float:
    """How often the group with the most probability is the right one, in percent."""
    among = torch.stack([scores[:, group == number].logsumexp(1) for number in range(int(group.max()) + 1)], 1)
    return 100 * float((among.argmax(1) == group[label]).float().mean())


if __name__ == "__main__":
    main()
