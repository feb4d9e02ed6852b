"""Where weights come from: a model that goes on from a private run's weights carries what that run spent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from halfmask.models.checkpoints import read_state
from halfmask.privacy.account import Account
from halfmask.privacy.fingerprints import key, keyed_hash

# Shorter tensors (a bias of zeros, a norm of ones) may be equal by chance.
_FEWEST_NUMBERS = 64


def tensor_hashes(tensors: Iterable[Tensor]) -> list[str]:
    """Keyed hashes of tensors by their values: they stay what they are when weights are renamed, cut out or saved in another format."""
    secret = key()
    floats = [tensor.detach().cpu().contiguous() for tensor in tensors if tensor.is_floating_point()]
    found = []
    for tensor in floats:
        if tensor.numel() >= _FEWEST_NUMBERS:
            found.append(keyed_hash(b"tensor" + tensor.float().numpy().tobytes(), secret).hex())
            # The same after a detour through half precision.
            found.append(keyed_hash(b"half" + tensor.half().numpy().tobytes(), secret).hex())
    if floats and all(tensor.numel() < _FEWEST_NUMBERS for tensor in floats):
        found.append(keyed_hash(b"whole" + b"".join(tensor.float().numpy().tobytes() for tensor in floats), secret).hex())
    return found


def runs_behind(weights: str | None, account: Account, model: nn.Module | None = None) -> list[str]:
    """Runs on these people that the initial weights come from, by what is in the file and by the folder it lies in.

    Args:
        model: where the weights come in a model, of which nobody knows where it got them.
    """
    if model is not None:
        return account.runs_behind(set(tensor_hashes(model.state_dict().values())), set())
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
