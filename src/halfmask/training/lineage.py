"""Where weights come from: a model that goes on from a private run's weights carries what that run spent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from halfmask.models.checkpoints import read_state
from halfmask.privacy.account import Account
from halfmask.privacy.fingerprints import key, keyed_hash

# Tensors of fewer values (a bias of zeros, a norm of ones) may be equal by chance; a whole model of tensors so small needs three.
_FEWEST_VALUES, _FEWEST_IN_ALL = 8, 3
_SHORT = (torch.float16, torch.bfloat16)


def released_hashes(parameters: Iterable[Tensor]) -> list[str]:
    """What a released model is known again by: its values, and those that they become on a detour through a shorter format.

    Only here: of weights that somebody begins with it is asked what they are, not what they are nearly. Weights that a run moved little
    are, rounded, those it began with, and so would be those of every other run that begins there.
    """
    kept = [parameter.detach() for parameter in parameters]
    rounded = ([tensor.to(short) if tensor.is_floating_point() else tensor for tensor in kept] for short in _SHORT)
    return list(dict.fromkeys(name for tensors in (kept, *rounded) for name in tensor_hashes(tensors)))


def tensor_hashes(tensors: Iterable[Tensor]) -> list[str]:
    """Keyed hashes of tensors by their values: they stay what they are when weights are renamed, cut out or saved in another format.

    Tensors that are all too small to tell have one together.
    """
    secret = key()
    floats = [tensor.detach().cpu().float().contiguous() for tensor in tensors if tensor.is_floating_point()]
    telling = [tensor for tensor in floats if _values(tensor, _FEWEST_VALUES)]
    found = [keyed_hash(b"tensor" + tensor.numpy().tobytes(), secret).hex() for tensor in telling]
    if floats and not telling:
        whole = torch.cat([tensor.flatten() for tensor in floats])
        if _values(whole, _FEWEST_IN_ALL):
            found.append(keyed_hash(b"whole" + whole.numpy().tobytes(), secret).hex())
    return found


def _values(tensor: Tensor, fewest: int) -> bool:
    """Whether a tensor has as many different values; most that do have them at their beginning."""
    flat = tensor.flatten()
    return len(flat[:4096].unique()) >= fewest or (len(flat) > 4096 and len(flat.unique()) >= fewest)


def runs_behind(weights: str | None, account: Account, model: nn.Module | None = None) -> list[str]:
    """Runs on these people that the initial weights come from, by what is in the file and by the folder it lies in.

    Args:
        model: where the weights come in a model, of which nobody knows where it got them.
    """
    if model is not None:
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        return account.runs_behind({*tensor_hashes(model.state_dict().values()), *tensor_hashes(trained)}, set())
    if weights in (None, "", "embedded"):
        return []
    path = Path(str(weights)).expanduser()
    state: Mapping[str, Tensor] = read_state(path)
    folders = [folder / "checkpoint" / "state.pt" for folder in (path.parent, path.parent.parent)]
    names = [_run_of_checkpoint(one) for one in (path, *folders)]
    return account.runs_behind(set(tensor_hashes(state.values())), {name for name in names if name is not None})


def _run_of_checkpoint(path: Path) -> str | None:
    """The run that a checkpoint is of, wherever it lies: its weights are in no ledger's list of released models."""
    if path.suffix == ".safetensors" or not path.is_file():
        return None
    try:
        return str(torch.load(path, map_location="cpu", weights_only=True)["run"])
    except Exception:  # weights of another make, or nothing that can be read: it names no run
        return None
