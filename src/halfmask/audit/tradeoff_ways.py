"""Ways to hide people, to be measured against each other: nothing at all, customary filters, figures drawn from the pose, and generators.

A generator hides a picture's person by drawing somebody new in their pose. So does, for free, whoever draws a figure by hand, or a
generator that never saw anybody private: both stand beside every run, since ε must buy something that they do not have.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from halfmask.audit.tradeoff import People
from halfmask.data.avatar_draw import draw_avatar
from halfmask.data.skeleton import Skeleton
from halfmask.errors import HalfmaskError
from halfmask.gradients.mechanism import method_named
from halfmask.metrics.pckh import JOINT_NAMES
from halfmask.models.judge import resized
from halfmask.models.posegan import PoseGAN, load_start
from halfmask.report.lineup import pose_pictures
from halfmask.tasks.generate import GenerateTask
from halfmask.training.config import RunConfig
from halfmask.training.runs import TrainedRun, open_run
from halfmask.views.baselines import BASELINES, baseline

# Strengths of baselines are counted in pixels of pictures so high.
REFERENCE_HEIGHT = 128
# Of each baseline the strength at which the paper found 65 % of actions recognised, and at which identities alone are compared.
PUBLISHED_STRENGTHS: dict[str, float] = {"blur": 3.8, "downsample": 8, "superpixels": 800}
_LETTERS = {"blur": "σ {:g}", "downsample": "1/{:g}", "superpixels": "{:g}"}
_NAMES = {"blur": "blur", "downsample": "downsampling", "superpixels": "superpixels"}
# Avatars are drawn this many times larger and made smaller, as edges are then soft.
_TIMES = 4
_GROUND = 128
# What tells runs of one curve apart, or what changes nothing that is drawn.
_SWEPT = ("epsilon", "seed", "method", "noise_multiplier", "insecure_seed", "even_so", "device", "chunk", "budget")
Hide = Callable[[np.ndarray, np.ndarray, int], np.ndarray]


@dataclass(frozen=True)
class Way:
    """One way to hide people at one strength.

    Attributes:
        family: ways that differ in strength alone have it in common.
        strength: as it is written beside a mark.
        kind: `raw`, `baseline`, `drawn`, `start` (a generator before any run), `public` (one that went on without private people) or `run`.
        key: names it for good, with its weights.
        hide: pictures N×3×H×W, their joints and a seed in; as many pictures out.
        order: places of a family follow each other by it, the weakest first.
        epsilon, method, seed, run: of a run; ε is infinite for one without noise, which is None in the file.
        pictured: whether it has a column where people are shown.
    """

    family: str
    strength: str
    kind: str
    key: str
    hide: Hide
    order: float = 0.0
    epsilon: float | None = None
    method: str | None = None
    seed: int | None = None
    run: str | None = None
    pictured: bool = True

    def facts(self) -> dict[str, Any]:
        """What is said of it in a file."""
        names = ("family", "strength", "kind", "order", "epsilon", "method", "seed", "run")
        return {name: getattr(self, name) for name in names} | {"epsilon": _finite(self.epsilon), "order": _finite(self.order)}


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def public_ways(people: People, scale: float | None = None, strengths: Mapping[str, Sequence[float]] | None = None) -> list[Way]:
    """The picture itself, every baseline at every strength, and figures drawn from the pose.

    Args:
        scale: of the baselines' strengths; by default the height of the pictures by that of those which the strengths are meant for.
        strengths: by baseline; by default all that are compared, or, where nobody knows what people do, the published one of each.
    """
    scale = people.size[0] / REFERENCE_HEIGHT if scale is None else scale
    if strengths is None:
        strengths = BASELINES if people.do_something else {name: (one,) for name, one in PUBLISHED_STRENGTHS.items()}
    ways = [Way("raw pictures", "", "raw", "raw", lambda images, joints, seed: images)]
    for name, some in strengths.items():
        for order, strength in enumerate(some):
            view, words = baseline(name, strength, scale), _LETTERS[name].format(strength)
            usual = strength == PUBLISHED_STRENGTHS[name]
            ways.append(Way(_NAMES[name], words, "baseline", repr(view), _through(view), order, pictured=usual))
    ways.append(Way("drawn stick figures", "", "drawn", "sticks 1", sticks(people.skeleton), pictured=False))
    if people.skeleton.names == JOINT_NAMES:
        ways.append(Way("drawn avatars", "", "drawn", "avatars 2", avatars))
    return ways


def _through(view: Any) -> Hide:
    def hide(images: np.ndarray, joints: np.ndarray, seed: int) -> np.ndarray:
        return np.stack([view(np.ascontiguousarray(image.transpose(1, 2, 0))).transpose(2, 0, 1) for image in images])

    return hide


def sticks(skeleton: Skeleton) -> Hide:
    """Poses as lines, which are all that a generator is told."""

    def hide(images: np.ndarray, joints: np.ndarray, seed: int) -> np.ndarray:
        size = (images.shape[2], images.shape[3])
        return resized(pose_pictures(joints, size, skeleton), size)

    return hide


def avatars(images: np.ndarray, joints: np.ndarray, seed: int) -> np.ndarray:
    """Somebody invented in each pose, on a grey ground: who is drawn is a public draw that knows nothing of the picture."""
    height, width = images.shape[2:]
    drawn = []
    for number, pose in enumerate(joints):
        points = np.where(pose[:, 2:] > 0, (pose[:, :2] + 0.5) * _TIMES - 0.5, np.nan)
        sheet = draw_avatar(points[None], f"tradeoff/{seed}/{number}", (_TIMES * height, _TIMES * width))[0].astype(float)
        if not sheet[..., 3].any():
            # Of somebody cut off by the picture's edge too little is known to dress: lines, then, as far as they go.
            drawn.append(pose_pictures(pose[None], (height, width))[0])
            continue
        cover = sheet[..., 3:] / 255
        drawn.append((sheet[..., :3] + _GROUND * (1 - cover)).clip(0, 255).round().astype(np.uint8).transpose(2, 0, 1))
    return np.concatenate([resized(picture[None], (height, width)) for picture in drawn])


# --- generators ----------------------------------------------------------------------------------------


def run_ways(folders: Sequence[tuple[str | None, Path]], device: str | None = None) -> tuple[list[Way], RunConfig]:
    """A way for each run, with the warm start that the first of them names before them; and the settings of that one.

    Args:
        folders: of runs of the task `generate`, each with a name for its curve, or None for one by its settings: runs that differ in ε and
            seed alone are one curve.
    """
    if not folders:
        raise HalfmaskError("no run was given: expected at least one folder that 'halfmask train generate/…' wrote")
    runs = [open_run(folder, device) for _, folder in folders]
    first = runs[0].config
    for run in runs:
        if run.config.task != "generate":
            raise HalfmaskError(f"{run.folder} is a run of the task '{run.config.task}': pictures are hidden by runs of 'generate'")
        if run.config.data != first.data:
            raise HalfmaskError(
                f"{run.folder} was trained with other data settings than {runs[0].folder}: expected runs on the same people, in "
                "pictures of the same size"
            )
    names = _curves(runs, [name for name, _ in folders])
    ways = [_start(runs[0])] if first.model.weights is not None and first.strategy != "scratch" else []
    return [*ways, *(_run_way(run, name) for run, name in zip(runs, names, strict=True))], first


def _run_way(run: TrainedRun, curve: str) -> Way:
    config, kind = run.config, method_named(run.config.method).private
    epsilon = {"noised": float(config.epsilon), "exact": math.inf}.get(kind, 0.0)
    key = f"{_digest(run.folder / 'model.safetensors')} {config.model.size} {config.model.spread:g}"
    return Way(
        curve,
        epsilon_words(epsilon),
        "public" if kind == "unread" else "run",
        key,
        _drawn_by(run.task, run.model),
        -min(epsilon, 1e300),
        epsilon,
        config.method,
        config.seed,
        run.folder.name,
    )


def _start(run: TrainedRun) -> Way:
    """The weights that runs began with, as they are."""
    config = run.config
    assert isinstance(run.model, PoseGAN)
    height, width = config.data.size
    model = PoseGAN(config.model.size, run.model.joints, height, width, conditional=config.model.conditional)
    load_start(model, config.model.weights)
    digest = hashlib.sha256()
    for tensor in model.generator.state_dict().values():
        digest.update(tensor.numpy().tobytes())
    key = f"{digest.hexdigest()[:16]} {config.model.size} {config.model.spread:g}"
    return Way("warm start", "ε 0", "start", key, _drawn_by(run.task, model.to(run.device).eval()), 0.0, 0.0)


def _drawn_by(task: Any, model: Any) -> Hide:
    assert isinstance(task, GenerateTask)

    def hide(images: np.ndarray, joints: np.ndarray, seed: int) -> np.ndarray:
        found: np.ndarray = task.generated(model, torch.from_numpy(joints).float(), seed)
        return found

    return hide


def epsilon_words(epsilon: float) -> str:
    """ε as it is written beside a mark.

    >>> epsilon_words(0.8), epsilon_words(1e6), epsilon_words(float("inf"))
    ('ε 0.8', 'ε 10⁶', 'ε ∞')
    """
    if math.isinf(epsilon):
        return "ε ∞"
    return "ε 10⁶" if epsilon == 1e6 else f"ε {epsilon:g}"


def _curves(runs: Sequence[TrainedRun], given: Sequence[str | None]) -> list[str]:
    """What each run's curve is called: as given, or by what its settings have that those of other curves have not."""
    kinds = [method_named(run.config.method).private for run in runs]
    settings = [_flat(run.config) for run in runs]
    noised = [one for one, kind in zip(settings, kinds, strict=True) if kind == "noised"]
    differ = sorted({name for one in noised for name in one if any(other.get(name) != one[name] for other in noised)})

    def curve(own: dict[str, Any]) -> str:
        words = ", ".join(f"{name}={own.get(name)}" for name in differ)
        return f"ours, {words}" if words else "ours"

    def found(run: TrainedRun, own: dict[str, Any], kind: str) -> str:
        if kind == "noised":
            return curve(own)
        # A run without noise is the far end of the curve that it shares everything with but noise and clip.
        same = next((one for one in noised if own | {"clip_norm": one["clip_norm"]} == one), None)
        return run.config.method if kind == "unread" or same is None else curve(same)

    return [name or found(run, own, kind) for name, run, own, kind in zip(given, runs, settings, kinds, strict=True)]


def _flat(config: RunConfig) -> dict[str, Any]:
    """Settings by their whole names, without those that differ along a curve."""
    found: dict[str, Any] = {}
    for name, value in config.plain().items():
        if isinstance(value, dict):
            found |= {f"{name}.{inner}": one for inner, one in value.items()}
        elif name not in _SWEPT:
            found[name] = value
    return found


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
