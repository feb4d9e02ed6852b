"""A run's network as one file for other runtimes: ONNX, with pre- and post-processing inside, and what is promised in its metadata.

The file is tried before it is there: onnxruntime answers for a hundred pictures, and where it is further from torch than it may be,
nothing is written.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from halfmask import __version__
from halfmask.errors import HalfmaskError, unknown_name
from halfmask.inference.finished import certificate_of_finished
from halfmask.inference.onnx_file import FACTS, answers, needed, open_session
from halfmask.tasks.base import Graph
from halfmask.training.outputs import CALIBRATION
from halfmask.training.runs import open_run, read_json
from halfmask.writing import write_whole, writing

FORMATS = ("onnx",)
# Pictures that torch and onnxruntime are compared on, and how many at a time: another number of them than the graph was traced with.
_TRIED, _AT_ONCE = 100, 25
# A score between two bins that are equally likely may fall to either; so many joints at most are such.
_MOST_UNDECIDED = 0.01
_MOST_AT_ONCE = 4096


@dataclass(frozen=True)
class Exported:
    """A file that was written.

    Attributes:
        deviation: by output, the largest difference between onnxruntime and torch that was seen.
        undecided: the share of answers that two bins are equally likely for, and onnxruntime took the other.
    """

    path: Path
    size: int
    tried: int
    deviation: dict[str, float]
    undecided: float
    cautions: tuple[str, ...]


def export(run: Path, out: Path, form: str = "onnx", flip_test: bool = False, overwrite: bool = False) -> Exported:
    """Write the network of a finished run as a file.

    Args:
        flip_test: let it look at the mirror image too, where its task knows what that is: better, and twice the work.
        overwrite: whether a file that is there is replaced.

    Raises:
        HalfmaskError: if the run is not finished, cannot be exported, or onnxruntime does not answer as torch does. Then no file is left.
    """
    if form not in FORMATS:
        raise unknown_name("format (--format)", form, FORMATS)
    if out.suffix.lower() != ".onnx":
        raise HalfmaskError(f"--out is {out}: expected a file ending in .onnx")
    if out.exists() and (not overwrite or not out.is_file()):
        raise HalfmaskError(f"{out} exists already: give another --out" + (", or add --overwrite" if out.is_file() else ""))
    needed("onnx", "onnxscript", "onnxruntime")
    trained = open_run(run, "cpu")
    if not all(bool(tensor.isfinite().all()) for tensor in trained.model.parameters()):
        raise HalfmaskError(f"the weights of {run} are not finite numbers: its training diverged, so it cannot be exported")
    certificate = certificate_of_finished(run)
    for parameter in trained.model.parameters():
        # Frozen normalisations are folded into the convolutions before them.
        parameter.requires_grad = False
    graph = trained.task.graph(trained.model, read_json(run / CALIBRATION) or {}, flip_test)
    graph.module.eval()
    cautions = (
        [] if certificate else [f"{run} has no certificate: nothing is promised to the people it was trained with, unless all are public"]
    )
    if graph.facts.get("scores") == "uncalibrated":
        cautions.append(
            f"the scores are the network's own: {run} has no {CALIBRATION}, which a run writes that has public people to spare for it"
        )
    facts = {"version": __version__, "task": trained.config.task, "run": run.resolve().name} | dict(graph.facts)
    card = run / "model_card.md"
    notes = {FACTS: json.dumps(facts, ensure_ascii=False), "model_card": card.read_text() if card.is_file() else ""}
    if certificate is not None:
        notes["certificate"] = json.dumps(certificate, ensure_ascii=False)
    with tempfile.TemporaryDirectory() as place:
        draft = Path(place) / "model.onnx"
        _write(graph, draft, notes)
        deviation, undecided = compare(graph, draft)
        body = draft.read_bytes()
    with writing(out, "export again"):
        out.parent.mkdir(parents=True, exist_ok=True)
        write_whole(out, body)
    return Exported(out, len(body), _TRIED, deviation, undecided, tuple(cautions))


def _write(graph: Graph, path: Path, notes: Mapping[str, str]) -> None:
    batch = torch.export.Dim("batch", min=1, max=_MOST_AT_ONCE)
    with _quiet(), torch.no_grad():
        program = torch.onnx.export(
            graph.module,
            tuple(graph.inputs.values()),
            dynamo=True,
            input_names=list(graph.inputs),
            output_names=list(graph.outputs),
            dynamic_shapes={name: {0: batch} for name in graph.inputs},
            verbose=False,
        )
    assert program is not None
    program.model.metadata_props.update({name: text for name, text in notes.items() if text})
    program.save(str(path), external_data=False)


def compare(graph: Graph, path: Path) -> tuple[dict[str, float], float]:
    """Hold a file's answers against torch's: by output the largest difference, and the share of answers that are as good as torch's.

    Raises:
        HalfmaskError: if any difference is larger than it may be.
    """
    session = open_session(path)
    given = graph.draw(_TRIED, 0)
    worst, equals, count = dict.fromkeys(graph.outputs, 0.0), 0, 0
    for start in range(0, _TRIED, _AT_ONCE):
        some = {name: value[start : start + _AT_ONCE] for name, value in given.items()}
        with torch.no_grad():
            answered = graph.module(*some.values())
        expected = dict(zip(graph.outputs, answered if isinstance(answered, tuple) else (answered,), strict=True))
        told = answers(session, list(graph.outputs), {name: value.numpy() for name, value in some.items()})
        found = {name: torch.from_numpy(np.array(value)) for name, value in zip(graph.outputs, told, strict=True)}
        as_good = graph.undecided(some, found) if graph.undecided else {}
        for name, most in graph.outputs.items():
            off = (found[name].double() - expected[name].double()).abs()
            off = torch.where(torch.isfinite(off), off, torch.full_like(off, torch.inf))
            if name in as_good:
                other = as_good[name].expand_as(off) & (off > most)
                equals, count = equals + int(other.sum()), count + other.numel()
                off = torch.where(other, torch.zeros_like(off), off)
            worst[name] = max(worst[name], float(off.max()))
    undecided = equals / max(1, count)
    wrong = {name: value for name, value in worst.items() if not value <= graph.outputs[name]}
    if wrong or undecided > _MOST_UNDECIDED:
        told_off = ", ".join(f"{name} by {value:.3g} (at most {graph.outputs[name]:g})" for name, value in wrong.items())
        raise HalfmaskError(
            f"onnxruntime does not answer as torch does on {_TRIED} pictures: "
            f"{told_off or f'{undecided:.1%} of joints fell to other bins'}. "
            "Nothing was written. Try other versions of onnxruntime and onnxscript, and report it with the run's config.yaml"
        )
    return worst, undecided


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """The exporter speaks of operators of packages that are not there, and of its own insides."""
    level = logging.root.manager.disable
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(level)


def as_json(done: Exported) -> dict[str, Any]:
    """For `--json`."""
    return {
        "file": str(done.path),
        "bytes": done.size,
        "pictures_compared": done.tried,
        "largest_difference": done.deviation,
        "undecided": done.undecided,
        "cautions": list(done.cautions),
    }
