"""An exported network, run by onnxruntime: torch is neither needed nor imported."""

from __future__ import annotations

import importlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from halfmask.data.skeleton import Skeleton
from halfmask.errors import HalfmaskError

# The entry of a file's metadata that says what it is.
FACTS = "halfmask"


@dataclass(frozen=True)
class OnnxPose:
    """A pose network in a file.

    Attributes:
        words: what it is, in a line.
        input_size: height and width of a crop.
        calibrated: whether its scores are chances.
        certificate: what its run promised; None if it promised nothing.
    """

    session: Any
    words: str
    skeleton: Skeleton
    input_size: tuple[int, int]
    calibrated: bool
    flip_test: bool
    certificate: dict[str, Any] | None

    def __call__(self, crops: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Joints in pixels (N×J×2) and scores (N×J) of crops given as bytes (N×3×H×W)."""
        joints, scores = answers(self.session, ["joints", "scores"], {"image": np.ascontiguousarray(crops)})
        return joints, scores


def open_session(path: Path, threads: int | None = None) -> Any:
    """A session of onnxruntime on the processor."""
    (runtime,) = needed("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    if threads is not None:
        options.intra_op_num_threads = options.inter_op_num_threads = threads
    try:
        return runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise HalfmaskError(
            f"{path} cannot be opened by onnxruntime ({_said(error)}): expected a file that 'halfmask export' wrote"
        ) from None


def answers(session: Any, names: list[str], given: dict[str, np.ndarray]) -> list[np.ndarray]:
    """What a network says."""
    try:
        return [np.asarray(value) for value in session.run(names, given)]
    except Exception as error:
        raise HalfmaskError(f"onnxruntime cannot run the network ({_said(error)}): export the run again") from None


def _said(error: Exception) -> str:
    """The first line: onnxruntime has a class for each thing that can be wrong, none of them shared, and long words for it."""
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def open_onnx(path: Path, threads: int | None = None) -> OnnxPose:
    """Open an exported pose network; other files, and networks of other tasks, are refused."""
    if not path.is_file():
        raise HalfmaskError(f"no model at {path}: give a file that 'halfmask export' wrote, or the folder of a run")
    session = open_session(path, threads)
    notes = session.get_modelmeta().custom_metadata_map
    try:
        facts = json.loads(notes[FACTS])
        task = str(facts["task"])
        promised = json.loads(notes["certificate"]) if "certificate" in notes else None
        if task == "pose":
            joints = facts["skeleton"]
            skeleton = Skeleton(
                str(joints["name"]),
                tuple(joints["joints"]),
                tuple((int(a), int(b)) for a, b in joints["flip_pairs"]),
                tuple((int(a), int(b)) for a, b in joints["bones"]),
            )
            height, width = (int(side) for side in facts["input_size"])
            calibrated = facts["calibration"] is not None
            words = f"'{facts['run']}' as ONNX"
            return OnnxPose(session, words, skeleton, (height, width), calibrated, bool(facts["flip_test"]), promised)
    except (KeyError, TypeError, ValueError):
        raise HalfmaskError(f"{path} does not say what it is: expected a file that 'halfmask export' wrote, with its metadata") from None
    raise HalfmaskError(
        f"{path} is a network of the task '{task}': 'halfmask predict' takes exported networks of the task 'pose'. Give the folder of the "
        "run, or call the file from a program (its metadata says what goes in and out)"
    )


def needed(*packages: str) -> list[Any]:
    """Packages of the extra `onnx`, or what to do if they are not there."""
    try:
        return [importlib.import_module(name) for name in packages]
    except ImportError as error:
        raise HalfmaskError(f"{error.name or packages[0]} is not installed: pip install 'halfmask[onnx]'") from None
