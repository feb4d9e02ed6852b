"""Reading weight files: safetensors first, pickled tensors only through torch's `weights_only` reader."""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from halfmask.errors import HalfmaskError
from halfmask.words import a_or_an

# Wrappers that public checkpoints put around the weights themselves.
_WRAPPERS = ("state_dict", "model", "model_state", "module")
_PREFIXES = ("module.", "backbone.", "image_encoder.")


def read_state(path: str | Path) -> dict[str, Tensor]:
    """Read a name → tensor dictionary from a `.safetensors`, `.pt` or `.pth` file. Never unpickles code."""
    path = Path(path)
    if not path.is_file():
        raise HalfmaskError(f"no weight file at {path}: give the path of a .safetensors or .pt file")
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise HalfmaskError(
            f"{path} is not a readable weight file ({type(error).__name__}): expected safetensors, or a .pt of tensors only"
        ) from error
    while isinstance(state, dict) and not any(isinstance(v, Tensor) for v in state.values()):
        inner = next((state[key] for key in _WRAPPERS if key in state), None)
        if inner is None:
            raise HalfmaskError(f"{path} holds no tensors: expected a state dictionary")
        state = inner
    if not isinstance(state, dict):
        raise HalfmaskError(f"{path} holds {a_or_an(type(state).__name__)}: expected a state dictionary")
    return {name: tensor for name, tensor in state.items() if isinstance(tensor, Tensor)}


def load_into(module: nn.Module, state: dict[str, Tensor], source: str, ignore: tuple[str, ...] = ()) -> None:
    """Copy `state` into `module`, all of it or nothing.

    Args:
        source: what to call the file in an error.
        ignore: prefixes of names in the file that may be passed over.
    """
    wanted = module.state_dict()
    for prefix in _PREFIXES:
        if state and all(name.startswith(prefix) for name in state):
            state = {name[len(prefix) :]: tensor for name, tensor in state.items()}
    found = {n: t for n, t in state.items() if not n.startswith(ignore or ("\0",)) and not n.endswith("num_batches_tracked")}
    missing = sorted(wanted.keys() - found.keys())
    unexpected = sorted(found.keys() - wanted.keys())
    shapes = [n for n in sorted(wanted.keys() & found.keys()) if wanted[n].shape != found[n].shape]
    if missing or unexpected or shapes:
        parts = []
        if missing:
            parts.append(f"{len(missing)} weights missing (first: {missing[0]})")
        if unexpected:
            parts.append(f"{len(unexpected)} unknown (first: {unexpected[0]})")
        if shapes:
            name = shapes[0]
            parts.append(
                f"{len(shapes)} of another shape (first: {name}, found {tuple(found[name].shape)}, expected {tuple(wanted[name].shape)})"
            )
        raise HalfmaskError(
            f"{source} is a checkpoint of another architecture: {'; '.join(parts)}. "
            "Choose the model size and number of joints that the file was made for"
        )
    module.load_state_dict(found)


def weights_digest(module: nn.Module) -> str:
    """A short fingerprint of every weight and buffer, for cache keys."""
    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]
