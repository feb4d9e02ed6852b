"""A run that is killed, over and over: `python -m benchmarks.kills [--kills 200] [--seed 0]`.

A small run of method feature, in a process of its own that SIGKILL ends: half of the time at a random moment, half of the time at a random
operation on the disk (before it, after it, or half-way through a write) of a part of the run that is drawn first, so that the short parts
have their share: opening the folder, reserving the plan, paying, checkpoints, taking a certificate back, writing one, releasing the
weights. What was killed goes on, and is killed again, until it ends; the next run then begins on the same people, or in a home where
nobody was enrolled yet.

After every kill: the ledger is intact; no file of any run knows of more steps than the ledger was paid for; its ε is at least that of the
steps taken; nothing was spent under a name that no run goes by; a certificate is true, or the weights beside it are older than it. In the
end the last run is taken to its end, certified and verified. Exits with 1 on any violation. What SIGKILL cannot show is a loss of power:
that writes are synchronised before they are relied on is for the tests to say.
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from halfmask.errors import HalfmaskError
from halfmask.privacy import ledger as chain
from halfmask.privacy.account import Account
from halfmask.privacy.accounting import epsilon
from halfmask.privacy.fingerprints import key
from halfmask.privacy.ledger import Ledger
from halfmask.privacy.verification import verify_certificate
from halfmask.training import running
from halfmask.training.config import RunConfig, build_config
from halfmask.training.outputs import RunFolder
from halfmask.training.progress import Progress
from halfmask.training.setup import Setup, prepare

RECIPE: dict[str, Any] = {
    "method": "feature",
    "strategy": "top",
    "batch": 4,
    "epochs": 1.5,
    "delta": 1e-3,
    "accountant": "rdp",
    "budget": 200.0,
    "even_so": True,
    "data": {"private": 40, "public": 8, "test": 2},
    "model": {"weights": None, "input_size": [64, 48]},
}
# A part of a run, what does it, and how many operations on the disk it has at most.
PARTS: dict[str, tuple[type, str, int]] = {
    "create": (RunFolder, "create", 2),
    "reserve": (Account, "begin", 28),
    "pay": (Account, "pay", 7),
    "checkpoint": (RunFolder, "save_checkpoint", 2),
    "withdraw": (RunFolder, "withdraw", 3),
    "record": (Account, "record_model", 7),
    "certificate": (RunFolder, "save_certificate", 4),
    "weights": (RunFolder, "save_weights", 2),
}
OPERATIONS = ("pwrite", "ftruncate", "fsync", "replace", "unlink")


@dataclass(frozen=True)
class Aim:
    """Die in a part of the run: the how-many-th time it is come to, at which operation, and how."""

    part: str
    visit: int
    operation: int
    manner: str


@dataclass
class Tried:
    """A run: its folder, and the home it spends in."""

    folder: Path
    home: Path

    @property
    def begun(self) -> bool:
        return (self.folder / "checkpoint" / "state.pt").exists()

    @property
    def ended(self) -> bool:
        return any(line.get("event") == "end" for line in self.log()[-1:])

    @property
    def name(self) -> str:
        return str(RunFolder(self.folder).load_checkpoint()["run"])

    def log(self) -> list[dict[str, Any]]:
        """Whole lines alone: the last may have been cut."""
        path = self.folder / "log.jsonl"
        text = path.read_text() if path.exists() else ""
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]

    def steps(self) -> int:
        """The most that any file of the folder knows of."""
        found = [0, *(int(line.get("step", 0)) for line in self.log())]
        if self.begun:
            found.append(int(RunFolder(self.folder).load_checkpoint()["step"]))
        if (self.folder / "certificate.json").exists():
            found.append(int(json.loads((self.folder / "certificate.json").read_text())["steps"]))
        return max(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0, help="of where and when to kill; what is killed has randomness of its own")
    options = parser.parse_args()
    torch.set_num_threads(1)
    logging.getLogger("absl").setLevel(logging.ERROR)
    # The first optimiser of a process imports half of torch: here, so that children forked later need not.
    torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HALFMASK_HOME"] = str(Path(folder) / "home0")
        config = build_config(RECIPE, {})
        bench = Bench(config, prepare(config, Progress()), Path(folder), random.Random(options.seed))
        violations = bench.run(options.kills)
    sys.exit(int(bool(violations)))


class Bench:
    """Starts, kills and looks.

    Attributes:
        aimed: the share of kills that fall on an operation on the disk, and not on a moment.
    """

    aimed = 0.5

    def __init__(self, config: RunConfig, setup: Setup, folder: Path, rng: random.Random):
        self.config, self.setup, self.folder, self.rng = config, setup, folder, rng
        self.runs: list[Tried] = []
        self.places: Counter[tuple[str, bool]] = Counter()
        self.manners: Counter[str] = Counter()
        self.violations: list[str] = []
        self.homes, self.resumed, self.ended, self.certified = 1, 0, 0, 0
        self.epsilons: dict[int, float] = {}
        self.usual = 1.0

    def run(self, kills: int) -> list[str]:
        begin = time.perf_counter()
        self._finish(self._next())
        self.usual = time.perf_counter() - begin
        print(f"a run of {self.setup.steps} steps takes {self.usual:.1f} s when nobody kills it", flush=True)
        while sum(self.places.values()) < kills and len(self.violations) < 5:
            self._once(self._next())
        last = self.runs[-1]
        if last.begun and not last.ended:
            self._finish(last)
        self._tell(last)
        return self.violations

    def _next(self) -> Tried:
        """What was killed goes on; what ended goes on too, now and then: its certificate is then withdrawn and written again."""
        if self.runs and self.runs[-1].begun and (not self.runs[-1].ended or self.rng.random() < 0.4):
            return self.runs[-1]
        if self.runs and self.rng.random() < 0.5:
            home = self.folder / f"home{self.homes}"
            home.mkdir(mode=0o700)
            shutil.copy(self.folder / "home0" / "fingerprint.key", home)
            self.homes += 1
        self.runs.append(Tried(self.folder / f"run{len(self.runs)}", self.folder / f"home{self.homes - 1}"))
        return self.runs[-1]

    def _once(self, run: Tried) -> None:
        resume, before = run.begun, _left_over(run)
        self.resumed += resume
        aim = self._aim(run) if self.rng.random() < self.aimed else None
        process = self._start(run, resume, aim)
        if aim is None:
            process.join(self.rng.uniform(0.0, 1.1 * self.usual))
            process.kill()
        process.join(120)
        if process.exitcode == 0:
            self.ended += 1
        elif process.exitcode == -signal.SIGKILL:
            self.places[_place(run, before), resume] += 1
            self.manners["at a random moment" if aim is None else f"{aim.part}: {aim.manner}"] += 1
        else:
            self.violations.append(f"{run.folder.name} could not {'go on' if resume else 'begin'} (exit code {process.exitcode})")
        self._look(run, f"after {aim or 'a random moment'}")

    def _aim(self, run: Tried) -> Aim:
        """A part that is still to come, and an operation that it has."""
        done = int(RunFolder(run.folder).load_checkpoint()["step"]) if run.begun else 0
        parts = ["record", "certificate", "weights"]
        parts += ["withdraw"] * 2 if run.ended else ["pay", "checkpoint"]
        parts += [] if run.begun else ["create", "reserve", "reserve"]
        part = self.rng.choice(parts)
        enrolled = _ledger_of(run) is not None
        operations = 7 if part == "reserve" and enrolled else PARTS[part][2]
        visits = {"pay": max(1, self.setup.steps - done - 1), "checkpoint": 1 if done else 3}.get(part, 1)
        manner = self.rng.choice(("before", "after", "half-way"))
        return Aim(part, self.rng.randint(1, visits), self.rng.randint(1, operations), manner)

    def _start(self, run: Tried, resume: bool, aim: Aim | None) -> multiprocessing.process.BaseProcess:
        os.environ["HALFMASK_HOME"] = str(run.home)
        process = multiprocessing.get_context("fork").Process(target=_child, args=(self.setup, self.config, run.folder, resume, aim))
        process.start()
        return process

    def _finish(self, run: Tried) -> None:
        process = self._start(run, run.begun, None)
        process.join(120)
        if process.exitcode != 0 or not run.ended:
            self.violations.append(f"{run.folder.name} could not be taken to its end (exit code {process.exitcode})")
        self._look(run, "at its end")

    def _look(self, run: Tried, when: str) -> None:
        found = self._wrong(run)
        self.violations += [f"{run.folder.name} {when}: {one}" for one in found]

    def _wrong(self, run: Tried) -> list[str]:
        os.environ["HALFMASK_HOME"] = str(run.home)
        ledger = Account(self.setup.data.fingerprints).ledger
        try:
            ledger.verify()
            spends = ledger.spends()
        except HalfmaskError as error:
            return [str(error)]
        wrong, taken, named = [], 0, set[str]()
        for one in (one for one in self.runs if one.home == run.home):
            steps, name = one.steps(), one.name if one.begun else ""
            named.add(name)
            paid = sum(spend.steps for spend in spends if spend.run == name)
            taken += steps
            if steps > paid:
                wrong.append(f"{one.folder.name} knows of {steps} steps, and {paid} were paid for")
        nameless = {spend.run for spend in spends} - named
        if nameless:
            wrong.append(f"{len(nameless)} runs have spent, and no folder goes by their name")
        plan = self.setup.plan
        assert plan is not None
        # Equal steps, so their number says it all; as the ledger's own accountant is told of them.
        if any(replace(spend.plan(), steps=plan.steps) != plan for spend in spends):
            wrong.append("the ledger was told of another mechanism")
        if self._epsilon_of(sum(spend.steps for spend in spends)) < self._epsilon_of(taken):
            wrong.append("the ledger's ε is below that of the steps taken")
        return wrong + self._certificate(run)

    def _epsilon_of(self, steps: int) -> float:
        if steps not in self.epsilons:
            plan = self.setup.plan
            assert plan is not None
            self.epsilons[steps] = epsilon([replace(plan, steps=steps)], self.config.delta, "rdp") if steps else 0.0
        return self.epsilons[steps]

    def _certificate(self, run: Tried) -> list[str]:
        model, paper = run.folder / "model.safetensors", run.folder / "certificate.json"
        if not paper.exists():
            return []
        if model.exists():
            failed = [check.check for check in verify_certificate(model, paper) if not check.passed]
            self.certified += not failed
            newer = model.stat().st_mtime_ns > paper.stat().st_mtime_ns
            if failed and (newer or failed != ["weights"]):
                return [f"the certificate is not true ({', '.join(failed)})"]
        return []

    def _tell(self, last: Tried) -> None:
        total = sum(self.places.values())
        print(f"\n{'where it fell, by what was on disk':62s} {'new':>5s} {'going on':>9s}")
        for place in dict.fromkeys(place for place, _ in sorted(self.places)):
            print(f"{place[2:]:62s} {self.places[place, False]:5d} {self.places[place, True]:9d}")
        new = sum(count for (_, resumed), count in self.places.items() if not resumed)
        print(f"{'together':62s} {new:5d} {total - new:9d}")
        aimed = Counter[str]()
        for manner, count in self.manners.items():
            aimed[manner.partition(":")[0]] += count
        print("\nhow: " + ", ".join(f"{name} {count}" for name, count in aimed.most_common()))
        print(f"{total} kills, {len(self.runs)} runs in {self.homes} homes; {self.resumed} times gone on, {self.ended} ended first")
        print(
            f"{self.certified} certificates beside weights were verified; the last run: {'ended, certified' if last.ended else 'not ended'}"
        )
        for violation in self.violations:
            print(f"VIOLATION: {violation}")
        print("no violation" if not self.violations else f"{len(self.violations)} violations")


def _child(setup: Setup, config: RunConfig, out: Path, resume: bool, aim: Aim | None) -> None:
    torch.set_num_threads(1)
    # Preparation is the same each time and spends nothing: done once, so that the kills fall on what matters.
    running.prepare = lambda *_, **__: replace(setup, account=Account(setup.data.fingerprints, config.unit))
    # ε for the screen: of no interest here, and it would take most of the time.
    Setup.spent = lambda *_: 0.0  # type: ignore[method-assign]
    if aim is not None:
        lay_in_wait(aim)
    running.run_training(config, out, resume=resume)


def lay_in_wait(aim: Aim) -> None:
    """Have this process killed when it comes to the operation that was aimed at."""
    owner, name, _ = PARTS[aim.part]
    visited, seen, inside = [0], [0], [False]
    part = getattr(owner, name)

    def watched(*args: Any, **kwargs: Any) -> Any:
        visited[0] += 1
        inside[0] = visited[0] == aim.visit
        try:
            return part(*args, **kwargs)
        finally:
            inside[0] = False

    setattr(owner, name, watched)

    def deadly(operation: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def act(*args: Any, **kwargs: Any) -> Any:
            seen[0] += inside[0]
            if not inside[0] or seen[0] != aim.operation:
                return real(*args, **kwargs)
            if aim.manner == "half-way" and operation == "pwrite":
                real(args[0], args[1][: len(args[1]) // 2], *args[2:])
            elif aim.manner != "before":
                real(*args, **kwargs)
            os.kill(os.getpid(), signal.SIGKILL)

        return act

    for operation in OPERATIONS:
        setattr(os, operation, deadly(operation, getattr(os, operation)))


def _ledger_of(run: Tried) -> Path | None:
    return next(iter((run.home / "ledgers").glob("*.jsonl")), None)


def _left_over(run: Tried) -> set[tuple[str, int]]:
    """Unfinished files, and an unfinished line, with their age: what an earlier kill left is no sign of a later one."""
    drafts = [*run.folder.rglob("*.draft"), *(run.home / "ledgers").glob("*.draft")]
    found = {(path.name, path.stat().st_mtime_ns) for path in drafts}
    path = _ledger_of(run)
    if path is not None and not path.read_bytes().endswith(b"\n"):
        found.add((path.name, path.stat().st_mtime_ns))
    return found


def _place(run: Tried, before: set[tuple[str, int]]) -> str:
    """Where a run was when it was killed, told from the files alone. The letter puts them in order."""
    fresh = {name for name, _ in _left_over(run) - before}
    if any(name.endswith(".jsonl") for name in fresh):
        return "d in the middle of a line of the ledger"
    ledger = _ledger_of(run)
    try:
        lines = Ledger(ledger.stem).lines() if ledger is not None else []
    except HalfmaskError:
        return "o nobody knows: the ledger is no longer intact"
    known = chain._read_index(run.home / "ledgers", key()).get(ledger.stem, [0])[0] if ledger is not None else 0
    if "index.draft" in fresh or len(lines) > known:
        return "e between a line of the ledger and its index"
    if fresh:
        return f"i in the middle of writing {sorted(fresh)[0].removesuffix('.draft')}"
    if not run.begun:
        return "a before the run had a name on disk"
    name = run.name
    own = [line for line in lines if line.get("run") == name]
    if not any(line["kind"] == "reserve" for line in own):
        return "b named, the plan not yet reserved"
    if not any(line["kind"] == "spend" for line in own):
        return "c reserved, nothing paid"
    if (run.folder / "certificate.json").exists():
        model = run.folder / "model.safetensors"
        if not model.exists() or model.stat().st_mtime_ns < (run.folder / "certificate.json").stat().st_mtime_ns:
            return "l certificate written, weights not"
        return "n after the end" if run.ended else "m certificate and weights written, the end not"
    if own[-1]["kind"] == "model":
        return "k weights recorded, certificate not written (or withdrawn)"
    paid = sum(line["last_step"] - line["first_step"] + 1 for line in own if line["kind"] == "spend")
    state = int(RunFolder(run.folder).load_checkpoint()["step"])
    return "f paid for steps that no checkpoint has" if paid > state else "h every paid step in a checkpoint"


if __name__ == "__main__":
    main()
