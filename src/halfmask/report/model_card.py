"""`model_card.md`: what whoever is handed a model has to know of it, on a page.

It is made of the files of a run's folder and of nothing else. All of those may leave, and so may the card: it cannot say anything about
private people that was not released before it.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from halfmask import __version__
from halfmask.metrics.names import about

_METHODS = {
    "dpsgd": "clipped gradients of private records with noise (DP-SGD)",
    "projected": "noised gradients, projected onto directions of public records",
    "feature": "exact gradients of public views, noised ones of private records",
    "feature-projective": "exact gradients of public views; noised ones of private records, projected onto directions of public records",
    "masked": "exact gradients of the public parts of clips, noised ones of their protected parts",
    "masked-projective": "exact gradients of the public parts of clips; noised ones of their protected parts, projected",
    "public-only": "public records and public views alone: nothing private was read",
    "non-private": "ordinary training on private records, **without any protection**",
}
_DOES = {
    "pose": "Says where the joints of a person are in a crop of a photograph.",
    "face": "Says of a region of a photograph whether it shows a face, where its landmarks are and how the head is turned.",
    "action": "Says what is being done in a clip of video.",
    "generate": "Draws people who do not exist, in given poses.",
}
_MEANT = {
    "pose": "Poses of people on photographs like those it was trained and judged on: posture, movement, ergonomics, sport, rehabilitation, "
    "where a person looks at the result before anything follows from it.",
    "face": "Where faces are and how they are turned, on photographs like those it was trained and judged on. It recognises nobody.",
    "action": "What happens in videos like those it was trained and judged on, where a person looks before anything follows from it.",
    "generate": "Pictures of people in the place of real ones, such as `halfmask sanitise` draws.",
}
_LIMITS = {
    "pose": "It places every joint of whatever it is shown, also of one that is hidden, and of a picture without anybody: look at the "
    "scores. One person per crop; somebody behind somebody else is not told apart.",
    "face": "Faces far smaller, darker or more turned than those it was judged on are missed. An attribute is a guess about a picture, not "
    "a fact about a person.",
    "action": "It answers with one of its classes whatever happens, also where none of them does.",
    "generate": "What is drawn looks like drawn people do. ε covers the people it was trained with, nobody whose pose is drawn.",
}
_NOT_MEANT = "Not meant for: telling who somebody is, decisions about people that nobody checks, diagnosis, or surveillance."
_PRIVACY_LIMIT = (
    "The promise is to the people of the private training set, one {unit} at a time, and holds as far as what is listed as public is "
    "public. It says nothing of people whom the model is shown later, nor of what is true of everybody alike."
)


def model_card(folder: Path) -> str:
    """The page, from `config.yaml`, `certificate.json`, `metrics.json`, `calibration.json` and the weights of a run's folder."""
    config = yaml.safe_load((folder / "config.yaml").read_text()) if (folder / "config.yaml").is_file() else {}
    certificate, metrics, calibration = (_json(folder / f"{name}.json") for name in ("certificate", "metrics", "calibration"))
    task = str(config.get("task", "own"))
    lines = [f"# Model card: {folder.resolve().name}", "", _DOES.get(task, f"A model of the task '{task}'."), ""]
    lines += _facts(folder, config, certificate, metrics)
    lines += ["", "## What is promised", "", *_promise(config, certificate)]
    lines += ["", "## How good it is", "", *_scores(metrics)]
    if calibration:
        lines += ["", "## What its scores mean", "", *_chances(calibration)]
    lines += ["", "## What it is meant for", "", _MEANT.get(task, "What its maker says: write it here."), "", _NOT_MEANT]
    unit = str(certificate.get("unit", "unit"))
    lines += ["", "## Limits", "", f"- {_LIMITS.get(task, 'What its maker knows of: write it here.')}"]
    lines += ["- Of people unlike those it was judged on nothing is known: try it on some of your own before you rely on it."]
    if certificate:
        lines += [f"- {_PRIVACY_LIMIT.format(unit=unit)}"]
    beside = "`certificate.md`, `config.yaml`" if certificate else "`config.yaml`"
    return "\n".join([*lines, "", f"Written by Halfmask {__version__} from {beside} and `metrics.json` beside it.", ""])


def _facts(folder: Path, config: Mapping[str, Any], certificate: Mapping[str, Any], metrics: Mapping[str, Any]) -> list[str]:
    model, data = config.get("model") or {}, config.get("data") or {}
    rows: dict[str, Any] = {"task": config.get("task")}
    weights = folder / "model.safetensors"
    if model.get("size"):
        rows["network"] = f"{model['size']}, {_parameters(weights):,} numbers, {weights.stat().st_size / 1e6:.1f} MB"
    elif weights.is_file():
        rows["network"] = f"{_parameters(weights):,} numbers, {weights.stat().st_size / 1e6:.1f} MB"
    if model.get("input_size"):
        rows["input"] = "×".join(str(side) for side in model["input_size"]) + " pixels (height × width)"
    rows["starts from"] = {None: "nothing", "embedded": "the weights that come with Halfmask, trained on drawn people alone"}.get(
        model.get("weights"), "weights of another file"
    )
    rows["data"] = certificate.get("dataset") or metrics.get("dataset") or data.get("name")
    if certificate:
        rows["private records"] = f"{certificate['units']:,} {certificate['unit']}s"
        rows["method"] = f"`{certificate['method']}`: {_METHODS.get(certificate['method'], 'see the documentation')}"
        rows["training"] = (
            f"{certificate['steps']:,} of {certificate['planned_steps']:,} planned steps, strategy `{config.get('strategy')}`"
        )
        rows["weights (SHA-256)"] = f"`{certificate['weights_sha256']}`"
    else:
        rows["method"] = "pre-training on public records alone"
    return ["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows.items() if value)]


def _promise(config: Mapping[str, Any], certificate: Mapping[str, Any]) -> list[str]:
    if not certificate:
        return ["Nothing: there is no certificate. It was trained on records that were declared public."]
    if certificate["statement"] == "rehearsal":
        return ["Nothing: the run was a rehearsal, with public views in the place of private images."]
    values = certificate["epsilon"]
    if "infinity" in values.values():
        reasons = "; ".join(certificate["unaccounted_reads"]) or "private records were read without noise"
        return [f"**No privacy guarantee (ε = ∞)**: {reasons}. Handle the model like the data itself."]
    told = ", ".join(f"{value:.4g} ({name})" for name, value in values.items())
    lines = [f"ε = {told} at δ = {certificate['delta']:g}, to one {certificate['unit']}. The whole statement is `certificate.md`."]
    if not any(values.values()):
        lines = ["No private part of any record was read: the model tells nothing of it beyond what is public (ε = 0)."]
    lines += ["", "Taken to be public, and not protected:", "", *(f"- {words}" for words in certificate["public_assumptions"])]
    lines += [f"- {words} (by an earlier run)" for words in certificate.get("already_public", ())]
    return lines + [f"- **caution**: {words}" for words in certificate["cautions"]]


def _scores(metrics: Mapping[str, Any]) -> list[str]:
    if not metrics:
        return ["Nobody judged it: there were no test records."]
    split = "test records" if metrics["split"] == "test" else "public records that it was not trained on"
    lines = [f"On {split} of {metrics['dataset']}:", "", "| | |", "|---|---|"]
    lines += [f"| {_title(name)} | {_number(name, value)} |" for name, value in metrics["metrics"].items()]
    parts = {name: value for name, value in metrics["parts"].items() if value is not None}
    if parts:
        first = next(iter(metrics["metrics"]), "")
        lines += ["", "Of each part (joint, class or sub-task):", "", "| part | |", "|---|---|"]
        lines += [f"| {name} | {_number(first if metrics['task'] == 'pose' else '', value)} |" for name, value in parts.items()]
    groups = metrics.get("groups") or []
    if groups:
        lines += ["", "Of each group that the dataset declares:", "", "| group | records | |", "|---|---|---|"]
        lines += [f"| {one['group']} | {one['records']} | {_number(one['metric'], one['value'])} |" for one in groups]
    else:
        lines += ["", "The dataset declares no groups of people, so nothing is known of differences between them."]
    return lines


def _chances(calibration: Mapping[str, Any]) -> list[str]:
    curve = calibration.get("flip") or next(iter(calibration.values()))
    return [
        "`halfmask predict` and exported files give each joint the chance that it is within a fifth of the torso length of its place. It "
        f"was fitted on {curve['joints']:,} joints of public people whom nothing was trained on, {100 * curve['right']:.0f} % of which "
        f"were right; there it is off by {100 * curve['error']:.1f} points on average. On other kinds of pictures it may be off by more."
    ]


def _title(name: str) -> str:
    """A metric's printed name, with the part of people it is of."""
    part = name.partition("/")[2]
    return (about(name).printed or name.partition("/")[0]) + (f", {part}" if part else "")


def _number(name: str, value: float | None) -> str:
    if value is None:
        return "–"
    info = about(name)
    shown = f"{value:.4g}" if info.digits is None else f"{value:.{info.digits}f}"
    return f"{shown} {info.unit}".strip()


def _parameters(weights: Path) -> int:
    """How many numbers a file of weights holds, by its header: no weight is read."""
    if not weights.is_file():
        return 0
    with weights.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
    total = 0
    for name, entry in header.items():
        if name != "__metadata__":
            size = 1
            for side in entry["shape"]:
                size *= side
            total += size
    return total


def _json(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text())) if path.is_file() else {}
