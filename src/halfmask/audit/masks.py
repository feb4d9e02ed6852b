"""Checks of masks: nothing protected has a part in the exact half of a step, and absent tokens have a part in nothing.

Clips of noise with masks go through the real thing, from stored pixels to the gradient: reading and resampling, view, features that are
computed once, public half, network. Then some stored pixels are others, and whatever must not change must not change by one bit. Every
check also tries what must be noticed: one that is blind fails.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from halfmask.audit.absent import garbage
from halfmask.audit.canaries import quarantine
from halfmask.audit.checks import public_batch_independent
from halfmask.audit.findings import Finding
from halfmask.audit.mask_clips import CLASSES, Bench, other_pixels
from halfmask.data.clips import ClipRecords
from halfmask.data.prints import named_prints
from halfmask.data.records import PRIVATE, REST, VIEW, Datasets
from halfmask.data.tables import Arrays
from halfmask.errors import HalfmaskError
from halfmask.gradients.engine import Batch, LossFn
from halfmask.gradients.mechanism import method_named
from halfmask.models.mvit import MViT
from halfmask.tasks.action import ActionTask, prepared
from halfmask.tasks.base import Task, task_named
from halfmask.training.config import RunConfig
from halfmask.training.loop import Trainer
from halfmask.views.tokens import Tokens

# How a network is trained, and whether what lies below is computed once.
WAYS = (("full", False), ("finetune", True), ("finetune", False), ("top", True))
_DRAWS, _STEPS = 2, 2000

CANNOT_SEE = (
    "masks that are wrong: what a mask does not cover is public, as the certificate says",
    "what a mask itself gives away: where somebody is, and what shape; masks are public",
    "a mask that was made from protected pixels, as one by motion is: the masks here come with the clips",
)


def has_mask(task: Task, config: RunConfig) -> bool:
    """Whether a run learns exactly from a part of each record that a mask chooses."""
    return isinstance(task, ActionTask) and method_named(config.method).view and isinstance(task.view(), Tokens)


def audit_recipe(config: RunConfig, seed: int = 0) -> dict[str, Any]:
    """Audit the masks of a recipe, whose network begins as the recipe says; the content of the audit's file."""
    task = task_named(config.task)(config)
    if not isinstance(task, ActionTask) or not has_mask(task, config):
        raise HalfmaskError(
            f"there is no mask in method '{config.method}' of task '{config.task}' with view '{config.view.name}': expected task action, "
            "view tokens, and a method with a public half, such as masked"
        )
    nobody = ClipRecords(Arrays({"clip": np.zeros((1, 1))}), Arrays({}), {}, "nobody", classes=CLASSES, prints=named_prints(["nobody"]))
    findings = mask_findings(config, task.build(Datasets(nobody)), seed)
    return {
        "audit": "masks",
        "task": config.task,
        "method": config.method,
        "protects": config.data.protect,
        "seed": seed,
        "checks": [finding.to_json() for finding in findings],
        "passed": all(finding.passed for finding in findings),
        "confidence": "what must not change must not change by one bit; the overlap of batches accuses sound code about once in a million",
        "cannot_see": list(CANNOT_SEE),
    }


def mask_findings(config: RunConfig, model: MViT, seed: int = 0) -> list[Finding]:
    """All checks of masks, with the settings and the weights of a run. Nothing private is read, and nothing is spent."""
    with quarantine() as home:
        bench = Bench(config, model, home, seed)
        clips, hidden, shown = _three(bench)
        return [
            *stored_pixels(bench, clips, hidden, shown),
            tokens_of_protected_pixels(bench, clips, hidden),
            unread_pixels(bench, clips),
            absent_tokens(bench, clips),
            batches_apart(bench, clips),
        ]


def _three(bench: Bench) -> tuple[ClipRecords, ClipRecords, ClipRecords]:
    """The clips; the same with every protected stored pixel another one; and with every public one another."""
    both = list(zip(bench.films, bench.protected, strict=True))
    return (
        bench.records(bench.films, "as it is"),
        bench.records([other_pixels(film, protected) for film, protected in both], "protected"),
        bench.records([other_pixels(film, ~protected) for film, protected in both], "public"),
    )


def stored_pixels(bench: Bench, clips: ClipRecords, hidden: ClipRecords, shown: ClipRecords) -> list[Finding]:
    """With other protected pixels ψ and the exact gradient are what they were; with other public ones they are not."""
    mine, others, changed = (
        bench.trainer(records, "full").setup.private.part(VIEW).rows(np.arange(len(records))) for records in (clips, hidden, shown)
    )
    gradients = [[_exact(bench.trainer(records, *way)) for way in WAYS] for records in (clips, hidden, shown)]
    moved = sum(int((mine[name] != others[name]).sum()) for name in mine)
    leaks = [_way(*way) for way, a, b in zip(WAYS, gradients[0], gradients[1], strict=True) if not torch.equal(a, b)]
    deaf = [_way(*way) for way, a, b in zip(WAYS, gradients[0], gradients[2], strict=True) if torch.equal(a, b)]
    finite = all(bool(torch.isfinite(gradient).all()) for some in gradients for gradient in some)
    seen = sum(int((mine[name] != changed[name]).sum()) for name in mine)
    return [
        Finding(
            "protected-pixels-change-nothing-public",
            not moved and not leaks and finite,
            f"with other protected pixels stored, {moved:,} numbers of ψ change, and the public gradient in {_listed(leaks)}",
            "0 numbers, and no way of training",
            "a straddling token that is public uncleared, a mask after the embedding, resampling before masking, attention or a statistic "
            "over both sets of tokens",
        ),
        Finding(
            "public-pixels-are-seen",
            seen > 0 and not deaf,
            f"with other public pixels stored, {seen:,} numbers of ψ change, and the public gradient in all but {_listed(deaf)}",
            "more than 0, and all but no way of training",
            "a public half that learns nothing, to which every other check would be blind",
        ),
    ]


def _exact(trainer: Trainer) -> Tensor:
    """The public gradients of the first steps, in which every clip is seen."""
    return torch.cat([trainer.exact.gradient() for _ in range(_DRAWS)])


def tokens_of_protected_pixels(bench: Bench, clips: ClipRecords, hidden: ClipRecords) -> Finding:
    """Every token that moves, behind the real patches, with a protected stored pixel is in the rest; and public only if cleared."""
    private = bench.trainer(clips, "full").setup.private
    everyone = np.arange(len(clips))
    with torch.no_grad():
        mine, others = (
            bench.model.conv_proj(prepared(torch.from_numpy(records.private.rows(everyone)["clip"]))) for records in (clips, hidden)
        )
    moved = (mine != others).any(1).numpy()
    public = private.part(VIEW).rows(everyone)["tokens"]
    rest = private.part(REST).rows(everyone)["tokens"] if private.rest is not None else np.ones_like(public)
    view = bench.task.view()
    assert isinstance(view, Tokens)
    exposed = 0 if view.edges == "cleared" else int((moved & public).sum())
    missed, beyond = int((moved & ~rest).sum()), int((~public & ~rest).sum())
    return Finding(
        "tokens-of-protected-pixels-are-private",
        not exposed and not missed and not beyond and bool(moved.any()) and bool(public.any()),
        f"{int(moved.sum()):,} of {moved.size:,} tokens move with protected pixels: {exposed} of them are public, {missed} are not in the "
        f"rest; {beyond} tokens are in neither",
        "some, 0, 0 and 0",
        "a patch of another shape than the view believes, a mask of the patch's middle alone, pixels that are mixed with their neighbours",
    )


def unread_pixels(bench: Bench, clips: ClipRecords) -> Finding:
    """Pixels in no patch of the tokens that a half is shown: others in their place change neither its loss nor its gradient."""
    unread = differing = 0
    blind = list[str]()
    for source, batch, loss in _halves(bench, clips):
        read = _read(bench.model, batch)
        unread += int((~read).sum())
        differing += not _same(bench.model, loss, batch, batch | {"clip": _other(batch["clip"], ~read)})
        if _same(bench.model, loss, batch, batch | {"clip": _other(batch["clip"], read)}):
            blind.append(source)
    return Finding(
        "pixels-of-absent-tokens-have-no-part",
        differing == 0 and unread > 0 and not blind,
        f"of {unread:,} pixels that only absent tokens read, others change {differing} of the halves" + _blind(blind),
        "some pixels, and 0 halves",
        "a forward pass that embeds or normalises all tokens before it drops some, or reads them later",
    )


def absent_tokens(bench: Bench, clips: ClipRecords) -> Finding:
    """Garbage in the place of absent tokens, behind every layer, changes neither loss nor gradient of either half."""
    differing, absent = [], 0
    blind = list[str]()
    for source, batch, loss in _halves(bench, clips):
        absent += int((~batch["tokens"]).sum())
        plain = _loss_and_gradients(bench.model, loss, batch)
        with garbage(bench.model, batch["tokens"]):
            spoilt = _loss_and_gradients(bench.model, loss, batch)
        with garbage(bench.model, batch["tokens"], absent=False):
            noticed = _loss_and_gradients(bench.model, loss, batch)
        if not _equal(plain, spoilt):
            differing.append(source)
        if _equal(plain, noticed):
            blind.append(source)
    return Finding(
        "absent-tokens-are-nothing",
        not differing and absent > 0 and not blind,
        f"garbage at {absent:,} absent tokens, behind every layer, changes {_listed(differing)}" + _blind(blind),
        "some tokens, and no half",
        "tokens that are zeroed and kept as keys, with the biases they met; a normalisation that counts them; attention between both sets",
    )


def batches_apart(bench: Bench, clips: ClipRecords) -> Finding:
    """The clips of the public batch are drawn without a look at the private one."""
    trainer = bench.trainer(clips, "top")
    known = trainer.setup.private.batch(np.arange(len(clips)), VIEW)["features"]

    def rows(batch: Batch) -> np.ndarray:
        return np.array([int((known == one).all(1).nonzero()[0, 0]) for one in batch["features"]])

    return public_batch_independent(trainer, rows, _STEPS)


def _halves(bench: Bench, clips: ClipRecords) -> list[tuple[str, Batch, LossFn]]:
    """What each half of a step is shown of the clips as they were read, and its loss; all weights train."""
    private = bench.trainer(clips, "full").setup.private
    everyone = np.arange(len(clips))
    halves: list[tuple[str, Batch, LossFn]] = [("the public half", private.batch(everyone, VIEW), bench.task.view_loss)]
    if private.rest is not None:
        # Of the clip as it is: with pixels on both sides of the border.
        whole = {"clip": torch.from_numpy(private.part(PRIVATE).rows(everyone)["clip"])}
        halves.append(("the private half", private.batch(everyone, REST) | whole, bench.task.loss))
    return halves


def _read(model: MViT, batch: Batch) -> Tensor:
    """N×T×1×H×W: the pixels that any of the present tokens reads, by what comes back to them through the real patches."""
    clips = prepared(batch["clip"]).requires_grad_()
    embedded = model.conv_proj(clips)
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(embedded.shape, generator=generator) * batch["tokens"][:, None]
    (back,) = torch.autograd.grad((embedded * weights).sum(), clips)
    return (back != 0).any(1)[:, :, None]


def _other(clips: Tensor, where: Tensor) -> Tensor:
    return torch.where(where, clips + 128, clips)


def _loss_and_gradients(model: MViT, loss: LossFn, batch: Batch) -> list[Tensor]:
    weights = list(model.parameters())
    for weight in weights:
        weight.requires_grad = True
    losses = loss(model, batch)
    return [losses.detach(), *torch.autograd.grad(losses.sum(), weights, materialize_grads=True)]


def _same(model: MViT, loss: LossFn, batch: Batch, other: Batch) -> bool:
    return _equal(_loss_and_gradients(model, loss, batch), _loss_and_gradients(model, loss, other))


def _equal(mine: Sequence[Tensor], others: Sequence[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(mine, others, strict=True))


def _way(strategy: str, cached: bool) -> str:
    return f"{strategy}, {'features computed once' if cached else 'from the clip'}"


def _listed(names: Sequence[str]) -> str:
    return "; ".join(names) if names else "none"


def _blind(sources: Sequence[str]) -> str:
    return f"; and {_listed(sources)} would notice nothing" if sources else ""
