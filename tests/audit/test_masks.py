"""The audit of masks passes the real code, and fails each planted fault by the check that is meant for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from torch import Tensor, nn

import halfmask.audit.mask_clips as bench
import halfmask.data.clip_records as reading
import halfmask.models.mvit as mvit
import halfmask.models.mvit_attention as mvit_attention
from halfmask.audit.masks import audit_recipe, has_mask
from halfmask.audit.own import audit_loss
from halfmask.data.clip_frames import fitted, windows_of
from halfmask.data.records import VIEW, Records
from halfmask.errors import HalfmaskError
from halfmask.models.mvit import Block, MViT
from halfmask.models.mvit_attention import Attention
from halfmask.tasks.action import ActionTask
from halfmask.training.config import RunConfig, build_config, load_recipe
from halfmask.training.loop import Trainer
from halfmask.training.outputs import RunFolder
from halfmask.training.progress import Progress
from halfmask.training.public import SharedBatch
from halfmask.training.setup import Setup
from halfmask.views.base import Seen
from halfmask.views.tokens import Tokens

pytestmark = pytest.mark.usefixtures("one_thread")
SMALL = ("model.weights=null", "model.frames=4", "model.side=32")
PIXELS, SEEN, TOKENS = "protected pixels change nothing public", "public pixels are seen", "tokens of protected pixels are private"
UNREAD, NOTHING, BATCHES = "pixels of absent tokens have no part", "absent tokens are nothing", "public-batch-independent"
Patch = pytest.MonkeyPatch


def config(*settings: str) -> RunConfig:
    # Tokens at the border are private, unless a trial says otherwise.
    return build_config(load_recipe("action/figures"), {}, [*SMALL, "view.options.edges=private", *settings])


@pytest.fixture(autouse=True)
def few_clips(monkeypatch: Patch) -> None:
    """One for each way to be stored: shrunk, enlarged, and one of each side."""
    monkeypatch.setattr(bench, "CLIPS", 3)


def failed(*settings: str) -> set[str]:
    torch.manual_seed(0)
    return {check["check"] for check in audit_recipe(config(*settings))["checks"] if not check["passed"]}


@pytest.mark.parametrize(
    "settings",
    [
        (),
        ("data.protect=person", "view.options.edges=cleared"),
        ("data.protect=mask", "data.mask_margin=2"),
        ("method=public-only", "data.fit=squeeze"),
    ],
)
def test_the_real_code_passes(settings: tuple[str, ...]) -> None:
    torch.manual_seed(0)
    body = audit_recipe(config(*settings))
    assert [check["check"] for check in body["checks"]] == [PIXELS, SEEN, TOKENS, UNREAD, NOTHING, BATCHES]
    assert body["passed"], [check for check in body["checks"] if not check["passed"]]


def test_a_recipe_without_a_mask_is_told_so() -> None:
    assert not has_mask(ActionTask(config("method=dpsgd")), config("method=dpsgd"))
    with pytest.raises(HalfmaskError, match="no mask in method 'dpsgd'"):
        audit_recipe(config("method=dpsgd"))


# ---- what is public ------------------------------------------------------------------------------------------------------


def straddling(patch: Patch) -> None:
    """A token at the border is public, with what is protected in it."""

    def of(self: Tokens, record: Any) -> Seen:
        hidden = np.asarray(record["hidden"], bool)
        return Seen({"clip": record["clip"], "tokens": self.any_of(~hidden)}, {"tokens": self.any_of(hidden)})

    patch.setattr(Tokens, "of", of)


def straddling_by_its_middle(patch: Patch) -> None:
    """The clip is cleared, but which tokens the private half is shown goes by the middle of each patch."""

    def any_of(self: Tokens, pixels: np.ndarray) -> np.ndarray:
        return pixels[:: self.stride[0], :: self.stride[1], :: self.stride[2]]

    patch.setattr(Tokens, "any_of", any_of)


def mask_after_the_embedding(patch: Patch) -> None:
    """Tokens are made of the clip as it is, and chosen by their place then."""

    def of(self: Tokens, record: Any) -> Seen:
        hidden = np.asarray(record["hidden"], bool)[:: self.stride[0], :: self.stride[1], :: self.stride[2]]
        return Seen({"clip": record["clip"], "tokens": ~hidden}, {"tokens": hidden})

    patch.setattr(Tokens, "of", of)


def resampling_before_masking(patch: Patch) -> None:
    """Frames are resampled as they are, and the mask by its nearest pixels."""

    def frames(stored: np.ndarray, protected: np.ndarray, size: int, windows: Any = None) -> tuple[np.ndarray, np.ndarray]:
        windows = windows or windows_of(stored.shape[:3])
        cut = [mask[top : top + down, left : left + across] for mask, (top, left, down, across) in zip(protected, windows, strict=True)]
        hidden = np.stack([cv2.resize(mask.astype(np.uint8), (size, size), interpolation=cv2.INTER_NEAREST) for mask in cut]) > 0
        return np.ascontiguousarray(fitted(stored, size, windows).transpose(0, 3, 1, 2)), hidden

    patch.setattr(reading, "network_frames", frames)


def blended_pixels_public(patch: Patch) -> None:
    """The outline, where person and background mix, is left to the public side."""
    real = reading.protected_pixels
    patch.setattr(reading, "protected_pixels", lambda film, *rest: real(replace(film, blended=0), *rest))


# ---- the network ---------------------------------------------------------------------------------------------------------


def zeroed(patch: Patch) -> None:
    """Absent tokens are zeros, and go through the network as all others do."""

    def lower(self: MViT, clips: Tensor, tokens: Tensor | None = None) -> Tensor:
        x = self.embed(clips)
        if tokens is not None:
            x = x * mvit.with_class(tokens)
        for block in self.blocks[: -mvit.LAST_BLOCKS]:
            x, _ = block(x, None)
        return torch.cat([x, x.new_ones(*x.shape[:2], 1)], -1)

    patch.setattr(MViT, "lower", lower)


def kept_as_keys(patch: Patch) -> None:
    """Absent tokens are zero wherever they are read, but stay keys, with the bias of their normalisation."""
    real = mvit.pooled_presence

    def everywhere(present: Tensor, kernel: Any, stride: Any) -> Tensor:
        return torch.ones_like(real(present, kernel, stride)) if kernel == mvit_attention._POOL else real(present, kernel, stride)

    patch.setattr(mvit_attention, "pooled_presence", everywhere)


def normalised_over(names: tuple[str, ...]) -> Callable[[Patch], None]:
    """A normalisation whose statistics are of all tokens of the clip, present or not."""

    class Over(nn.LayerNorm):
        def forward(self, x: Tensor) -> Tensor:
            axes = tuple(range(1, x.dim()))
            scaled = (x - x.mean(axes, keepdim=True)) / (x.var(axes, keepdim=True) + self.eps).sqrt()
            return scaled * self.weight + self.bias

    def plant(patch: Patch) -> None:
        real = Block.__init__

        def begin(self: Block, *args: Any) -> None:
            real(self, *args)
            for name in names:
                setattr(self, name, Over(getattr(self, name).normalized_shape, eps=1e-6))

        patch.setattr(Block, "__init__", begin)

    return plant


def normalised_before_dropping(patch: Patch) -> None:
    """All tokens of the clip are normalised together, and then some are dropped."""
    real = MViT.embed
    patch.setattr(MViT, "embed", lambda self, clips: nn.functional.layer_norm(real(self, clips), real(self, clips).shape[1:]))


def joint_pass(patch: Patch) -> None:
    """One forward pass of the whole clip for both halves; each then goes on with its own tokens."""
    real = Records.batch

    def whole(self: Records, rows: Any, source: str = "private", device: Any = "cpu") -> dict[str, Tensor]:
        batch = real(self, rows, source, device)
        if source == VIEW and "clip" in batch:
            batch["clip"] = real(self, rows, "private", device)["clip"]
        return batch

    def lower(self: MViT, clips: Tensor, tokens: Tensor | None = None) -> Tensor:
        x, present = self.embed(clips), tokens
        for block in self.blocks[: -mvit.LAST_BLOCKS]:
            assert isinstance(block, Block)
            x, _ = block(x, None)
            if present is not None and block.stride != (1, 1, 1):
                present = mvit.pooled_presence(present, block.skip_kernel, block.stride)
        there = x.new_ones(*x.shape[:2], 1) if present is None else mvit.with_class(present).to(x.dtype)
        return torch.cat([x, there], -1)

    patch.setattr(Records, "batch", whole)
    patch.setattr(MViT, "lower", lower)


def attention_between(patch: Patch) -> None:
    """Tokens of both sets are keys to each other; everything else tells them apart."""
    real = Attention.forward
    patch.setattr(Attention, "forward", lambda self, x, present, after: real(self, x, None, after))


# ---- batches -------------------------------------------------------------------------------------------------------------


def one_batch(patch: Patch) -> None:
    """One batch for both halves."""

    class Shares(Trainer):
        def __init__(self, setup: Setup, folder: RunFolder, progress: Progress):
            super().__init__(setup, folder, progress)
            shared = SharedBatch(setup, self.engine, self.exact.showing)
            shared.publish(np.arange(2))
            self.exact, self.noised = shared, replace(self.noised, publish=shared.publish)

    patch.setattr(bench, "Trainer", Shares)


@pytest.mark.parametrize(
    ("plant", "caught_by"),
    [
        (straddling, {PIXELS, TOKENS}),
        (straddling_by_its_middle, {TOKENS}),
        (mask_after_the_embedding, {PIXELS, TOKENS}),
        (resampling_before_masking, {PIXELS, TOKENS}),
        (blended_pixels_public, {PIXELS, TOKENS}),
        (zeroed, {NOTHING}),
        (kept_as_keys, {NOTHING}),
        (normalised_over(("norm1",)), {NOTHING}),
        (normalised_over(("norm2",)), {NOTHING}),
        (normalised_before_dropping, {UNREAD, NOTHING}),
        (joint_pass, {PIXELS, UNREAD, NOTHING}),
        (attention_between, {NOTHING}),
        (one_batch, {BATCHES}),
    ],
)
def test_planted_faults_are_caught(plant: Callable[[Patch], None], caught_by: set[str], monkeypatch: Patch) -> None:
    plant(monkeypatch)
    assert failed() == caught_by


def test_the_audit_of_a_run_looks_at_its_masks(monkeypatch: Patch, quick_accounting: None) -> None:
    """The loss of the run, and the masks besides; a fault in either is told."""
    torch.manual_seed(0)
    run = config("strategy=top")
    model = MViT("nano", 4, 4, 32)
    task = ActionTask(run)
    task.trainable(model, "top")
    like = task.with_tokens(bench.Bench(run, model, Path("unused"), 0).records(bench.noise_films(4, 32, 0), "shapes"))
    body = audit_loss(task, model, like, run)
    assert body["passed"], [check for check in body["checks"] if not check["passed"]]
    assert {PIXELS, SEEN, TOKENS, UNREAD, NOTHING, BATCHES} < {check["check"] for check in body["checks"]}
    assert NOTHING not in {check["check"] for check in audit_loss(task, model, like, replace(run, method="dpsgd"))["checks"]}
