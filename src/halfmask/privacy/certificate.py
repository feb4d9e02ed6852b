"""The statement a run ends with: what is promised, to whom, at what price, and on which assumptions."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from halfmask import __version__


@dataclass(frozen=True)
class Certificate:
    """Everything a privacy officer needs to judge a run.

    Attributes:
        epsilon: ε under each adjacency that has a meaning for the method.
        public_assumptions: what the promise takes to be known to everyone.
        unaccounted_reads: reads of private data outside the mechanism. Any makes the promise void.
        ledger_total: ε of all runs ever made on the dataset, this one included, at `adjacency`.
        related_datasets: other known datasets that share records with this one; their spending is in `ledger_total`.
        public_record_hashes: keyed hashes of records that left the private set to span the subspace, and are not protected.
    """

    method: str
    unit: str
    units: int
    adjacency: str
    epsilon: dict[str, float]
    delta: float
    accountant: str
    noise_multiplier: float
    sampling_rate: float
    steps: int
    planned_steps: int
    clip_norm: float
    expected_batch: float
    public_assumptions: list[str]
    noise_source: str
    ledger_total: float
    dataset_fingerprint: str
    related_datasets: list[str] = field(default_factory=list)
    public_record_hashes: list[str] = field(default_factory=list)
    unaccounted_reads: list[str] = field(default_factory=list)
    code_version: str = __version__

    @property
    def guarantee(self) -> float:
        """ε at the certificate's own adjacency; infinite if anything was read outside the mechanism."""
        return math.inf if self.unaccounted_reads else self.epsilon[self.adjacency]

    def to_json(self) -> dict[str, Any]:
        """A dictionary for `certificate.json`; infinities are written as the word `infinity`, which JSON can carry."""
        body = asdict(self)
        if self.unaccounted_reads:
            body["epsilon"] = dict.fromkeys(self.epsilon, math.inf)
        return _finite(body)

    def to_markdown(self) -> str:
        """The readable page."""
        lines = ["# Privacy certificate", "", self._promise(), "", "| | |", "|---|---|"]
        rows = {
            "method": self.method,
            "protected unit": f"one {self.unit} (of {self.units:,})",
            "adjacency": self.adjacency,
            **{f"ε ({name})": _number(math.inf if self.unaccounted_reads else e) for name, e in self.epsilon.items()},
            "δ": f"{self.delta:g}",
            "accountant": self.accountant,
            "noise multiplier σ": _number(self.noise_multiplier),
            "clip norm C": f"{self.clip_norm:g}",
            "sampling rate q": f"{self.sampling_rate:.6g}",
            "expected batch": f"{self.expected_batch:g}",
            "steps taken": f"{self.steps:,} of {self.planned_steps:,} planned",
            "noise source": self.noise_source,
            "spent on this dataset by all runs": f"ε = {_number(self.ledger_total)} (as if all had been fixed in advance)",
            "dataset fingerprint": f"`{self.dataset_fingerprint}`",
            "code version": self.code_version,
        }
        lines += [f"| {name} | {value} |" for name, value in rows.items()]
        lines += ["", "## What is assumed public", ""] + [f"- {line}" for line in self.public_assumptions]
        lines += ["", "## Reads of private data outside the mechanism", ""]
        lines += [f"- {line}" for line in self.unaccounted_reads] or ["None."]
        return "\n".join(lines) + "\n"

    def write(self, folder: Path) -> None:
        """Write `certificate.json` and `certificate.md`."""
        (folder / "certificate.json").write_text(json.dumps(self.to_json(), indent=2, ensure_ascii=False) + "\n")
        (folder / "certificate.md").write_text(self.to_markdown())

    def _promise(self) -> str:
        if not math.isfinite(self.guarantee):
            return (
                "**This model carries no privacy guarantee** (ε = ∞). It was trained on private data without the protection "
                "of the mechanism and must be handled like the data itself."
            )
        if self.guarantee == 0:
            return (
                "This model was trained without reading the private part of any record, so it reveals nothing about it beyond what "
                "is assumed public below."
            )
        change = {
            "add-remove": "present or absent",
            "zero-out": "as it was or with its private part left out",
            "replace-one": "as it was or with its private part exchanged for any other",
        }[self.adjacency]
        return (
            f"Take any one {self.unit} of the dataset, {change}. Whatever an attacker concludes from the released model, its "
            f"probability differs between the two cases by a factor of at most e^{self.guarantee:.4g} = "
            f"{math.exp(min(self.guarantee, 50)):.3g}, except with probability {self.delta:g}. This holds whatever else the attacker "
            "knows, and whatever is computed from the model later, provided that what is listed as public below is public."
        )


def _number(value: float) -> str:
    return f"{value:.4g}" if math.isfinite(value) else "∞"


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "infinity" if value > 0 else str(value)
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_finite(inner) for inner in value]
    return value
