"""The statement a run ends with: what is promised, to whom, at what price, and on which assumptions."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from halfmask import __version__
from halfmask.privacy.code import code_commit, code_digest
from halfmask.privacy.glossary import glossary
from halfmask.privacy.units import told_by_id
from halfmask.words import a_or_an
from halfmask.writing import write_whole

_PROMISED = "## What is promised"


@dataclass(frozen=True)
class Certificate:
    """Everything a privacy officer needs to judge a run.

    Attributes:
        statement: `certificate`, or `rehearsal` for a run with views in the place of images, which promises nothing.
        epsilon: ε under each adjacency that has a meaning for the method; that of the released model, so composed with the runs whose
            weights it goes on from.
        own_epsilon: ε of this run's own steps, where that differs.
        composed_with: runs on the same people whose weights this model goes on from.
        coarser: what the promise is worth to a larger unit, by its name: ε, and how many of the protected units it has at most.
        finer: what it is worth to a smaller unit that lies whole in a protected one, by its name: ε with that of it exchanged or left out.
        public_assumptions: what the promise takes to be known to everyone.
        already_public: what earlier runs on these people took to be public: it stays so, whatever this run hides.
        unaccounted_reads: reads of private data outside the mechanism. Any makes the promise void.
        cautions: what weakens the promise without voiding it.
        ledger_total: ε of all runs ever made on the dataset, this one included, at `adjacency`, to one `ledger_unit`.
        ledger_lines, ledger_hash: how long the dataset's ledger was, and the hash of its last line: one that was cut back since is seen.
        related_datasets: other known datasets that show some of these people; their spending is in `ledger_total`.
        public_record_hashes: keyed hashes of records that left the private set to span the subspace, and are not protected.
        weights_sha256: of the model file that this speaks of, and of no other.
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
    dataset: str
    run: str
    run_name: str
    weights_sha256: str
    statement: str = "certificate"
    date: str = field(default_factory=lambda: datetime.now(timezone.utc).isoformat(timespec="seconds"))
    own_epsilon: dict[str, float] = field(default_factory=dict)
    coarser: dict[str, dict[str, float]] = field(default_factory=dict)
    finer: dict[str, float] = field(default_factory=dict)
    composed_with: list[str] = field(default_factory=list)
    already_public: list[str] = field(default_factory=list)
    related_datasets: list[str] = field(default_factory=list)
    public_record_hashes: list[str] = field(default_factory=list)
    unaccounted_reads: list[str] = field(default_factory=list)
    cautions: list[str] = field(default_factory=list)
    visible_batches: bool = False
    ledger_unit: str = ""
    ledger_lines: int = 0
    ledger_hash: str = ""
    code_version: str = __version__
    code_commit: str = field(default_factory=code_commit)
    code_digest: str = field(default_factory=code_digest)

    @property
    def guarantee(self) -> float:
        """ε at the certificate's own adjacency; infinite if anything was read outside the mechanism, or nothing is promised."""
        return math.inf if self.unaccounted_reads or self.statement == "rehearsal" else self.epsilon[self.adjacency]

    def to_json(self) -> dict[str, Any]:
        """A dictionary for `certificate.json`; infinities are written as the word `infinity`, which JSON can carry."""
        body = asdict(self)
        if self.statement == "rehearsal":
            # Nothing was promised to anybody, not even infinity.
            body |= {"epsilon": dict.fromkeys(self.epsilon), "own_epsilon": {}, "coarser": {}, "finer": {}}
        elif self.unaccounted_reads:
            body |= {"epsilon": dict.fromkeys(self.epsilon, math.inf), "own_epsilon": {}, "coarser": {}, "finer": {}}
        return _finite(body)

    def to_markdown(self) -> str:
        """The readable page."""
        rehearsed = self.statement == "rehearsal"
        title = "# Rehearsal: a statement without a promise" if rehearsed else "# Privacy certificate"
        lines = [title, "", "## What is not protected", "", *self._unprotected(), "", _PROMISED, "", self._promise(), ""]
        lines += ["| | |", "|---|---|"]
        void = bool(self.unaccounted_reads)
        rows = {
            "dataset": f"{self.dataset} (fingerprint `{self.dataset_fingerprint}`)",
            "run": f"{self.run_name} (`{self.run}`)",
            "date": self.date,
            "weights (SHA-256)": f"`{self.weights_sha256}`",
            "method": self.method,
            "protected unit": f"one {self.unit} (of {self.units:,})",
            "adjacency": self.adjacency,
            **({} if rehearsed else {f"ε ({name})": _number(math.inf if void else e) for name, e in self.epsilon.items()}),
            **(
                {} if rehearsed or void else {f"of it by this run's own steps ({name})": _number(e) for name, e in self.own_epsilon.items()}
            ),
            **(
                {}
                if rehearsed or void
                else {
                    f"ε to one {name} of up to {each['most']} {self.unit}s": _number(each["epsilon"]) for name, each in self.coarser.items()
                }
            ),
            **({} if rehearsed or void else {f"ε to one {name} of {a_or_an(self.unit)}": _number(e) for name, e in self.finer.items()}),
            "δ": f"{self.delta:g}",
            "accountant": self.accountant,
            "noise multiplier σ": _number(self.noise_multiplier),
            "clip norm C": f"{self.clip_norm:g}",
            "sampling rate q": f"{self.sampling_rate:.6g}",
            "expected batch": f"{self.expected_batch:g}",
            "steps paid for": f"{self.steps:,} of {self.planned_steps:,} planned",
            "noise source": self.noise_source,
            "spent on this dataset by all runs": f"ε = {_number(self.ledger_total)} to one {self.ledger_unit or self.unit} (as if "
            "all had been "
            "fixed in advance)",
            "ledger": f"{self.ledger_lines} lines, the last `{self.ledger_hash[:16]}`" if self.ledger_lines else "none",
            "code": f"version {self.code_version}, commit {self.code_commit}, sources `{self.code_digest[:16]}`",
        }
        lines += [f"| {name} | {value} |" for name, value in rows.items()]
        lines += ["", "## What the words mean", "", *(f"- **{word}**: {meaning}" for word, meaning in glossary(self).items())]
        lines += ["", "## Reads of private data outside the mechanism", ""]
        lines += [f"- {line}" for line in self.unaccounted_reads] or ["None."]
        return "\n".join(lines) + "\n"

    def _unprotected(self) -> list[str]:
        """What the promise does not cover, which whoever reads one page of this should read: the rest is about what it does."""
        if not math.isfinite(self.guarantee):
            opening = ["Nothing and nobody is protected by this statement: see below why."]
        else:
            opening = ["All of this is taken to be known to everyone, or is nobody's secret. The promise below says nothing about it."]
        lines = [f"- {line}" for line in self.public_assumptions]
        lines += [f"- for good, since an earlier run on these people: {line}" for line in self.already_public]
        if not told_by_id(self.unit):
            lines.append(
                f"- somebody who has several {self.unit}s, as a person: the promise is to one {self.unit}, and to several it is weaker"
            )
        lines += [
            "- what holds of people in general: to learn that is what a model is for",
            "- the data itself, wherever it is stored, and every other model that was trained on it: this is about the one released model",
        ]
        cautions = ["", "**Caution:**", "", *(f"- {line}" for line in self.cautions)] if self.cautions else []
        return [*opening, "", *lines, *cautions]

    def write(self, folder: Path) -> None:
        """Write `certificate.json` and `certificate.md`."""
        write_whole(folder / "certificate.json", (json.dumps(self.to_json(), indent=2, ensure_ascii=False) + "\n").encode())
        write_whole(folder / "certificate.md", self.to_markdown().encode())

    def _promise(self) -> str:
        if self.statement == "rehearsal":
            return (
                "**This is not a certificate.** The run was a rehearsal: public views of private people took the place of their images. No "
                "private image was read, and nothing is promised of a model that was trained on any."
            )
        if not math.isfinite(self.guarantee):
            return (
                "**This model carries no privacy guarantee** (ε = ∞). It was trained on private data without the full protection "
                "of the mechanism and must be handled like the data itself."
            )
        if self.guarantee == 0:
            return (
                "This model was trained without reading the private part of any record, so it reveals nothing about it beyond what "
                "is listed above as not protected."
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
            "knows, and whatever is computed from the model later, provided that what is listed above as not protected is public."
            + (" **See the caution above.**" if self.cautions else "")
        )


def promise_in(page: str) -> str:
    """The promise in the text of a `certificate.md`, of any version: before, it stood first."""
    _, found, rest = page.partition(f"{_PROMISED}\n\n")
    return rest.split("\n\n")[0] if found else page.split("\n\n")[1]


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
