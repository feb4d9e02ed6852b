"""Actions in video: what somebody does in a clip.

With `masked` methods a clip is divided by its mask: the tokens of the public side are learnt from exactly, those that anything protected
has a part in are clipped and noised, in a forward pass of their own. Labels and masks are public there, and the certificate says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from halfmask.data.clip_sets import load_clip_test, load_clips, load_public_clips
from halfmask.data.clips import UNITS, ClipRecords
from halfmask.data.records import PRIVATE, Datasets, Records
from halfmask.data.tables import Arrays
from halfmask.errors import HalfmaskError
from halfmask.gradients.mechanism import METHODS, method_named
from halfmask.metrics.actions import METRICS, action_scores, metrics_of, tables_of
from halfmask.metrics.names import MetricInfo
from halfmask.models.checkpoints import load_into, read_state, weights_digest
from halfmask.models.mvit import LAST_BLOCKS, PATCH, PATCH_STRIDE, MViT, last_normalisations
from halfmask.models.mvit_attention import Grid
from halfmask.tasks.action_changes import NUMBERS, changed
from halfmask.tasks.action_settings import ACTION_GROUPS
from halfmask.tasks.action_showing import ActionShowing
from halfmask.tasks.base import Batch, Graph, Lower, Report, Scores, register
from halfmask.views import Framewise, ImageView, View, make_view
from halfmask.views.tokens import Tokens

if TYPE_CHECKING:
    from halfmask.gradients.engine import ClippingEngine
    from halfmask.training.public import PublicHalf
    from halfmask.training.setup import Setup

_Clips = TypeVar("_Clips", bound=Records)
# As public video networks were trained.
_MEAN, _SPREAD = 0.45, 0.225
_JOINTS = 16
_PROTECTED = {
    "background": "everything but the person",
    "person": "the person",
    "mask": "what the data holder's mask protects",
}

_NO_MASKS = "these clips have no masks: say where masks come from with data.masks (own, files, boxes or motion)"
_SEVERAL = {
    "clip": "that the promise is to one clip: a video or a person of several clips has less of it. Train with --unit video, or with --unit "
    "subject where ids are known, to protect those",
    "video": "that the promise is to one video: a person of several has less of it. Train with --unit subject, where ids are known, to "
    "protect people",
}
_UNBOUNDED = {"video": "a video (data.clips_per_video would say so)", "subject": "a person (data.clips_per_subject would say so)"}


def action_logits(model: nn.Module, batch: Batch) -> Tensor:
    """One score for each class, from the clips or from whatever was computed of them before."""
    assert isinstance(model, MViT)
    if "features" in batch:
        features = batch["features"]
        scores: Tensor = model.head(features) if features.dim() == 2 else model.upper(features)
        return scores
    scores = model(prepared(batch["clip"]), _present(batch["tokens"]))
    return scores


def prepared(clips: Tensor) -> Tensor:
    """N×T×3×H×W bytes as a network for video is given them: N×3×T×H×W, normalised."""
    return ((clips.float() / 255 - _MEAN) / _SPREAD).transpose(1, 2)


def _present(tokens: Tensor) -> Tensor | None:
    """A full set is exactly the ordinary network, which is faster."""
    return None if bool(tokens.all()) else tokens


def action_loss(model: nn.Module, batch: Batch) -> Tensor:
    """Cross-entropy, one value for each clip. `sharpness`, where present, multiplies the scores."""
    scores = action_logits(model, batch)
    if "sharpness" in batch:
        scores = scores * batch["sharpness"][:, None]
    return F.cross_entropy(scores, batch["label"], reduction="none")


@register
class ActionTask(ActionShowing):
    """Clips, and what is done in them."""

    name = "action"
    shards = True
    units = UNITS
    numbers = NUMBERS
    groups = ACTION_GROUPS
    methods = tuple(METHODS)
    # The others need public clips of the very classes.
    compared = ("non-private", "public-only", "dpsgd", "feature", "masked")
    cached = ("top", "finetune")
    metrics: ClassVar[Mapping[str, MetricInfo]] = METRICS
    drawn = "Frames of test clips, and the action that is seen in them"
    labels = "the action of every clip, and its mask: where in each frame the protected pixels are"

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:  # noqa: D102
        return action_loss(model, batch)

    # ---- data ------------------------------------------------------------------------------------------

    def load(self, report: Report | None = None) -> Datasets:  # noqa: D102
        data = load_clips(self.config.data, *self.clip_shape, report, self.shard)
        parts = {name: getattr(data, name) for name in ("private", "public", "test", "basis", "tuning")}
        return replace(data, **{name: self.with_tokens(part) for name, part in parts.items() if part is not None})

    def load_test(self, report: Report | None = None) -> Records:  # noqa: D102
        return self.with_tokens(load_clip_test(self.config.data, *self.clip_shape, report))

    def load_public(self, report: Report | None = None) -> tuple[Records, Records | None]:  # noqa: D102
        public, judged = load_public_clips(self.config.data, *self.clip_shape, report)
        return self.with_tokens(public), None if judged is None else self.with_tokens(judged)

    def with_tokens(self, records: _Clips) -> _Clips:
        """The records with the list of a whole clip's tokens, all of which are there: whole clips and parts of clips look alike."""
        assert isinstance(records.private, Arrays)
        grid = self.grid
        return replace(records, private=records.private.changed(tokens=np.broadcast_to(True, (len(records), *grid))))

    @property
    def clip_shape(self) -> tuple[int, int]:
        """Frames of a clip, and pixels a side."""
        frames, side = self.config.model.clip_shape
        return frames, side

    @property
    def grid(self) -> tuple[int, int, int]:
        """How many tokens a clip has, in time and in space."""
        frames, side = self.clip_shape
        return Grid(frames, side, side).pooled(PATCH_STRIDE)

    def view(self) -> View:  # noqa: D102
        config = self.config
        if config.view.name != "tokens":
            made = make_view(config.view.name, config.view.options)
            assert isinstance(made, ImageView)
            return Framewise(made)
        unknown = sorted(config.view.options.keys() - {"edges"})
        if unknown:
            raise HalfmaskError(f"view 'tokens' does not take {', '.join(unknown)}: expected edges, 'private' or 'cleared'")
        if config.data.masks == "none" and method_named(config.method).view:
            raise HalfmaskError(_NO_MASKS)
        return Tokens(
            config.view.options.get("edges", "private"),
            divides=method_named(config.method).rest,
            patch=PATCH,
            stride=PATCH_STRIDE,
            protects=_PROTECTED[config.data.protect],
        )

    def change(self, records: Records, batch: Batch, uniforms: Tensor) -> Batch:  # noqa: D102
        return changed(batch, uniforms, self.config.augment)

    def sample(self, model: nn.Module, records: Records) -> Batch:
        """Noise for clips, each with a part of its tokens."""
        assert isinstance(model, MViT)
        generator = torch.Generator().manual_seed(self.config.seed)
        clips = torch.randint(0, 256, (4, model.frames, 3, model.side, model.side), generator=generator, dtype=torch.uint8)
        tokens = torch.rand(4, *model.grid, generator=generator) < 0.5
        classes = len(model.state_dict()["head.1.bias"])
        return {"clip": clips, "tokens": tokens, "label": torch.randint(0, classes, (4,), generator=generator)}

    # ---- the network -----------------------------------------------------------------------------------

    def build(self, data: Datasets) -> MViT:  # noqa: D102
        assert isinstance(data.private, ClipRecords)
        config = self.config.model
        model = MViT(config.size, len(data.private.classes), *self.clip_shape, joints=_JOINTS if self.config.pretrain.joints else 0)
        if config.weights is None or self.config.strategy == "scratch":
            return model
        path = Path(config.weights).expanduser()
        if config.weights == "embedded":
            path = Path(str(resources.files("halfmask").joinpath(f"weights/action_{config.size}.safetensors")))
            if not path.is_file():
                raise HalfmaskError(f"no embedded weights for an MViT of size '{config.size}': set model.weights to a file or to nothing")
        state = read_state(path)
        keep = config.keep_head and state.get("head.1.weight", torch.zeros(0)).shape == model.head[1].weight.shape
        if not keep:
            # Nothing is known of classes that the weights were not trained on: all are equally likely, and no direction is preferred.
            state |= {name: torch.zeros_like(value) for name, value in model.state_dict().items() if name.startswith("head.")}
        # Where joints are is asked in pre-training alone.
        asked = {name: value for name, value in model.state_dict().items() if name.startswith("joints.")}
        state = asked | {name: value for name, value in state.items() if not name.startswith("joints.") or name in asked}
        load_into(model, {name: value.float() for name, value in state.items()}, str(path))
        return model

    def open(self, weights: Path) -> MViT:  # noqa: D102
        state, config = read_state(weights), self.config.model
        model = MViT(config.size, len(state["head.1.bias"]), *self.clip_shape)
        load_into(model, {name: value for name, value in state.items() if not name.startswith("joints.")}, str(weights))
        self.opened = weights.parent
        return model

    def trainable(self, model: nn.Module, strategy: str) -> None:
        """`finetune` trains the normalisations of the last two blocks and the head, `top` the head alone."""
        assert isinstance(model, MViT)
        chosen = {"finetune": last_normalisations(model), "top": list(model.head.parameters())}.get(strategy, list(model.parameters()))
        marked = {id(parameter) for parameter in chosen}
        for parameter in model.parameters():
            parameter.requires_grad = id(parameter) in marked

    def lower(self, model: nn.Module) -> Lower:
        """Tokens before the last two blocks, or under `top` the vector that the head is given."""
        assert isinstance(model, MViT)
        below = [model.conv_proj, model.pos_encoding, *model.blocks[:-LAST_BLOCKS]]
        if self.config.strategy != "top":
            return Lower("".join(weights_digest(part) for part in below), lambda batch: lower_features(model, batch))
        below += [*model.blocks[-LAST_BLOCKS:], model.norm]
        return Lower("".join(weights_digest(part) for part in below), lambda batch: model.vector(lower_features(model, batch)))

    def features(self, model: nn.Module, batch: Batch) -> Tensor:  # noqa: D102
        assert isinstance(model, MViT)
        known = batch.get("features")
        if known is not None and known.dim() == 2:
            return known
        return model.vector(lower_features(model, batch) if known is None else known)

    def calibrate(self, model: nn.Module, batches: Iterable[Batch]) -> float:
        """The factor on all scores at which the loss of these clips, who must not have been trained on, is smallest."""
        found = dict.fromkeys((2 ** (step / 4) for step in range(-12, 9)), 0.0)
        with torch.no_grad():
            for batch in batches:
                scores = action_logits(model, batch)
                for sharpness in found:
                    found[sharpness] += float(F.cross_entropy(scores * sharpness, batch["label"], reduction="sum"))
        return min(found, key=found.__getitem__)

    def pretraining(self, setup: Setup, engine: ClippingEngine) -> PublicHalf:
        """Clips, some of them in part."""
        # Pre-training belongs to the rooms that ask a task, not to what a task needs.
        from halfmask.tasks.action_pretraining import FromClips

        return FromClips(setup, engine)

    # ---- judging and showing ---------------------------------------------------------------------------

    def score(
        self,
        model: nn.Module,
        records: Records,
        source: str = PRIVATE,
        device: torch.device | str = "cpu",
        flip_test: bool = True,
    ) -> Scores:
        """Accuracy over clips and over classes. Mirror images are not looked at."""
        assert isinstance(records, ClipRecords)
        with torch.no_grad():
            logits = [action_logits(model, batch).float().cpu() for batch in records.batches(source, device)]
        labels = records.targets.rows(np.arange(len(records)))["label"]
        found = action_scores(torch.cat(logits).numpy(), labels, records.classes)
        return Scores(metrics_of(found), found["per_class"], tables=tables_of(found))

    def graph(self, model: nn.Module, confidence: Mapping[str, Any], flip_test: bool = False) -> Graph:  # noqa: D102
        from halfmask.tasks.graphs import action_graph

        assert isinstance(model, MViT)
        return action_graph(model, self.class_names(model))

    def public_facts(self, data: Datasets) -> list[str]:
        """Where the masks come from, and how much of the clips they protect."""
        records, view = data.private, self.view()
        facts = self._to_larger_units(records)
        if not method_named(self.config.method).view or not isinstance(view, Tokens) or not isinstance(records, ClipRecords):
            return facts
        shares = protected_shares(records, view)
        lines = [
            f"the masks of all clips, which come from {records.masks}: **protected is {view.protects}**, as far as the masks say so",
            f"the share of protected tokens: {100 * shares.mean():.1f} % over all clips (masks are public)",
        ]
        if (shares == 0).any():
            lines.append(f"that {int((shares == 0).sum()):,} clips have no protected token: nothing of them is hidden by this method")
        if (shares == 1).any():
            lines.append(f"that {int((shares == 1).sum()):,} clips have no public token: nothing of them but the label is learnt exactly")
        return lines + facts

    def most_in(self, unit: str) -> dict[str, int]:  # noqa: D102
        found: dict[str, int] = self.config.data.most_in(unit)
        return found

    def _to_larger_units(self, records: Records) -> list[str]:
        """That a promise to a small unit is less of one to a larger, and for which of those no ε can be stated."""
        unit = self.config.unit
        if unit not in _SEVERAL:
            return []
        known = self.most_in(unit).keys() & set(records.unit_names())
        free = [words for name, words in _UNBOUNDED.items() if UNITS.index(name) > UNITS.index(unit) and name not in known]
        silent = f". Nothing but private clips bounds the {unit}s of {' or of '.join(free)}, so no ε is stated there" if free else ""
        return [_SEVERAL[unit] + silent]

    def mislabelled(self, strangers: Records, members: Records, chosen: np.ndarray) -> Records:
        """With another's label, and the mask that is theirs: it belongs to their pixels."""
        return replace(super().mislabelled(strangers, members, chosen), truth=strangers.truth.take(chosen))


def protected_shares(records: ClipRecords, view: Tokens) -> np.ndarray:
    """Of each clip, the share of its tokens that anything protected has a part in."""
    if "hidden" not in records.truth.shapes():
        raise HalfmaskError(_NO_MASKS)
    return np.array([view.any_of(row).mean() for row in _rows(records)])


def _rows(records: ClipRecords) -> Iterator[np.ndarray]:
    for row in range(len(records)):
        yield records.truth.rows(np.array([row]))["hidden"][0]


def lower_features(model: MViT, batch: Batch) -> Tensor:
    """What the frozen part of the network makes of clips."""
    return model.lower(prepared(batch["clip"]), _present(batch["tokens"]))
