"""Random changes to clips: the same for all frames, for the clip and for its view, and for the list of its tokens."""

from __future__ import annotations

import torch
from torch import Tensor

from halfmask.data.figures import FLIP_PAIRS
from halfmask.tasks.action_settings import ActionShowingConfig
from halfmask.tasks.base import Batch

# Whether to mirror; brightness; contrast.
NUMBERS = 3


def changed(batch: Batch, uniforms: Tensor, config: ActionShowingConfig) -> Batch:
    """Clips (N×T×3×H×W bytes) after changes that each record's own numbers draw."""
    clips, tokens = batch["clip"], batch["tokens"]
    if config.mirror:
        turned = uniforms[:, 0] < 0.5
        clips = torch.where(turned.view(-1, 1, 1, 1, 1), mirrored_clips(clips), clips)
        tokens = torch.where(turned.view(-1, 1, 1, 1), mirrored_tokens(tokens), tokens)
        if "joints" in batch:
            batch = batch | {"joints": torch.where(turned.view(-1, 1, 1, 1), mirrored_joints(batch["joints"]), batch["joints"])}
    if config.light and clips.dtype == torch.uint8:
        gain, contrast = ((1 + config.light * (2 * uniforms[:, k] - 1)).float().view(-1, 1, 1, 1, 1) for k in (1, 2))
        # About the middle that protected pixels are cleared to, so that a cleared pixel stays what it is.
        lit = (clips.float() - MIDDLE) * contrast * gain + MIDDLE
        clips = lit.round().clamp(0, 255).to(torch.uint8)
    return batch | {"clip": clips, "tokens": tokens}


MIDDLE = 115.0


def mirrored_clips(clips: Tensor) -> Tensor:
    """Mirror images, moved by one pixel: only so does every patch lie where a patch of the mirrored clip does.

    Patches are centred on every fourth pixel from the first. Mirrored, their centres would lie between those; a list of tokens could not
    follow, and a token that is public would come to straddle the border. The first column of a clip falls out, and the last, which comes
    to lie second, is first as well: left where it was, the first would be seen beside pixels that none of its own tokens sees.
    """
    return torch.cat([clips[..., -1:], clips[..., 1:].flip(-1)], -1)


def mirrored_tokens(tokens: Tensor) -> Tensor:
    """The same of the list of tokens. The first reads some of what its opposite, the last, reads: it is there if that is."""
    return torch.cat([tokens[..., -1:], tokens[..., 1:].flip(-1)], -1)


def mirrored_joints(joints: Tensor) -> Tensor:
    """The same of joints (N×T×16×2, as shares of the frame from its centre): left and right change places."""
    order = list(range(16))
    for right, left in FLIP_PAIRS:
        order[right], order[left] = left, right
    return joints[:, :, order] * torch.tensor([-1.0, 1.0])
