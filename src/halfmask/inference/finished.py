"""Whether a run is finished, and whether the certificate beside its weights is about those weights: nothing else is handed on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from halfmask.errors import HalfmaskError
from halfmask.privacy.verification import verify_certificate
from halfmask.training.runs import read_json

CERTIFICATE = ("certificate.json", "certificate.md")


def certificate_of_finished(folder: Path) -> dict[str, Any] | None:
    """The certificate of a finished run; None for pre-training on public people, which has none.

    Raises:
        HalfmaskError: if the run was stopped or is going on, or if its certificate speaks of other weights.
    """
    events = _events(folder)
    # Pre-training on public people writes no noise down, and no certificate.
    private = any("noise_multiplier" in event for event in events)
    stopped = next((bool(event.get("interrupted")) for event in reversed(events) if event.get("event") == "end"), private)
    certificate = read_json(folder / CERTIFICATE[0])
    if stopped or (private and certificate is None):
        raise HalfmaskError(
            f"{folder} is unfinished: its training was stopped, diverged, or is going on. Finish it with 'halfmask train --resume --out "
            f"{folder}', or give a finished run"
        )
    if certificate is not None:
        wrong = next(
            (check.found for check in verify_certificate(folder / "model.safetensors", folder / CERTIFICATE[0], True) if not check.passed),
            None,
        )
        if wrong:
            raise HalfmaskError(
                f"the certificate of {folder} is about other weights than those beside it ({wrong}): restore both from one run"
            )
    return certificate


def _events(folder: Path) -> list[dict[str, Any]]:
    path = folder / "log.jsonl"
    try:
        return [json.loads(line) for line in path.read_text().splitlines() if line] if path.is_file() else []
    except ValueError:
        raise HalfmaskError(f"{path} cannot be read as a log: expected the file that 'halfmask train' wrote") from None
