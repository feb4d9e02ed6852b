"""A pose network as a recipe asks for it: its public weights, what of it trains, and what an untrained one learns first."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from halfmask.errors import HalfmaskError
from halfmask.models.checkpoints import load_into, read_state
from halfmask.models.simcc import PoseModel
from halfmask.models.tinyvit import learning_statistics


def build_model(
    config: Any, joints: int = 16, untrained: bool = False, same_joints: Callable[[int, int], dict[int, int]] | None = None
) -> PoseModel:
    """The network with its public weights: embedded, of a whole pose model, or of a backbone alone.

    Args:
        config: the recipe's `model` group.
        same_joints: for weights of as many joints as its first argument, which of them are joints of this network; None to refuse weights
            that place others.
    """
    model = PoseModel(config.size, joints, config.input_size, config.stage4_stride, config.norm, config.bins_per_pixel)
    if untrained or config.weights is None:
        return model
    if config.weights == "embedded":
        path = Path(str(resources.files("halfmask").joinpath(f"weights/pose_{config.size}.safetensors")))
        if not path.is_file():
            raise HalfmaskError(f"no embedded weights for model size '{config.size}': set model.weights to a file, or use size 'nano'")
    else:
        path = Path(config.weights).expanduser()
    state = read_state(path)
    if any(name.startswith("head.conv") for name in state):
        if same_joints is not None:
            state = _with_joints(state, model, joints, same_joints)
        load_into(model, state, str(path))
    else:
        model.backbone.load_weights(path)
    return model


def _with_joints(
    state: dict[str, Tensor], model: PoseModel, joints: int, same_joints: Callable[[int, int], dict[int, int]]
) -> dict[str, Tensor]:
    """Weights with one map of the head for each joint of the network: those that the file has, and untrained ones."""
    found = len(state["head.conv.weight"])
    if found == joints:
        return state
    changed = dict(state)
    for name in ("head.conv.weight", "head.conv.bias"):
        if name in state:
            maps = model.state_dict()[name].clone()
            for mine, theirs in same_joints(found, joints).items():
                maps[mine] = state[name][theirs]
            changed[name] = maps
    return changed


def choose_parameters(model: PoseModel, strategy: str) -> None:
    """Mark the trainable parameters.

    * `finetune`: stage 4, the head and every LayerNorm;
    * `top`: stage 4 and the head, so that what lies below can be computed once;
    * `full` and `scratch`: everything.
    """
    upper = {id(p) for part in (model.backbone.stages[3], model.head) for p in part.parameters()}
    norms = {id(p) for m in model.modules() if isinstance(m, nn.LayerNorm) for p in m.parameters()}
    for parameter in model.parameters():
        parameter.requires_grad = (
            strategy in ("full", "scratch") or id(parameter) in upper or (strategy == "finetune" and id(parameter) in norms)
        )


@torch.no_grad()
def learn_statistics(model: PoseModel, batches: Iterable[Tensor]) -> None:
    """Set the frozen normalisations of an untrained network by one pass over public pictures.

    A cumulative average over the batches: each layer sees inputs normalised by its own batch, as it would early in training.
    """
    for index, images in enumerate(batches):
        with learning_statistics(model, momentum=1 / (index + 1)):
            model(images)
