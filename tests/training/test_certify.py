"""A certificate is about its weights, says what its ledger says, and does not outlive either."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import halfmask.training.loop as loop
import halfmask.training.running as running
from halfmask.errors import HalfmaskError
from halfmask.privacy.accounting import SampledGaussian, epsilon
from halfmask.privacy.adjacency import Adjacency
from halfmask.privacy.ledger import Ledger
from halfmask.privacy.sampling import PoissonSampler
from halfmask.privacy.spends import total_epsilon
from halfmask.privacy.verification import verify_certificate
from halfmask.training.certify import certificate_of
from halfmask.training.config import RunConfig
from halfmask.training.loop import Trainer
from halfmask.training.outputs import RunFolder
from halfmask.training.progress import Progress
from halfmask.training.running import run_training
from halfmask.training.setup import prepare

pytestmark = pytest.mark.usefixtures("quick_accounting", "one_thread")
Build = Callable[..., RunConfig]


@pytest.fixture
def config(tiny_config: Build) -> Build:
    return lambda *assignments, **flags: replace(tiny_config(*assignments, **flags), insecure_seed=None)


def certificate_in(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "certificate.json").read_text())


def verified(folder: Path) -> bool:
    return all(check.passed for check in verify_certificate(folder / "model.safetensors", folder / "certificate.json"))


class StopsAt(Progress):
    def __init__(self, step: int, error: type[BaseException] = KeyboardInterrupt):
        self.at, self.error = step, error

    def step(self, step: int, total: int, public_loss: float | None, epsilon: float | None) -> None:
        if step == self.at:
            raise self.error


# ---- bound to its model --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["dpsgd", "public-only", "feature-projective"])
def test_a_certificate_names_what_it_certifies(method: str, config: Build, tmp_path: Path, fresh_home: Path) -> None:
    folder = run_training(config(method=method), tmp_path / "run")
    body = certificate_in(folder)
    assert body["weights_sha256"] == hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    assert (body["dataset"], body["run_name"]) == ("figures", "run") and len(body["run"]) == 16
    assert body["date"].startswith("20") and body["code_version"] and len(body["code_digest"]) == 64 and body["code_commit"]
    lines = Ledger(body["dataset_fingerprint"]).lines()
    assert body["ledger_lines"] == len(lines) and body["ledger_hash"] == lines[-1]["hash"]
    page = (folder / "certificate.md").read_text()
    for shown in (body["weights_sha256"], body["date"], body["run"], body["code_commit"]):
        assert shown in page
    assert verified(folder)


def _bytes_changed(folder: Path) -> None:
    body = bytearray((folder / "model.safetensors").read_bytes())
    body[-1] ^= 1
    (folder / "model.safetensors").write_bytes(bytes(body))


def _edited(**changes: Any) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        body = certificate_in(folder) | changes
        (folder / "certificate.json").write_text(json.dumps(body))

    return edit


def _ledger_of(folder: Path) -> Ledger:
    return Ledger(certificate_in(folder)["dataset_fingerprint"])


def _ledger_cut(folder: Path) -> None:
    path = _ledger_of(folder).path
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))


def _paid_more(folder: Path) -> None:
    ledger = _ledger_of(folder)
    ledger.append(replace(ledger.spends()[-1], first_step=2, last_step=2))


def _others_weights(folder: Path) -> None:
    """Other weights, and a certificate whose digest was changed to match."""
    _bytes_changed(folder)
    _edited(weights_sha256=hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest())(folder)


DIFFERENCES: dict[str, Callable[[Path], None]] = {
    "other weights": _bytes_changed,
    "fewer steps": _edited(steps=1),
    "more noise": _edited(noise_multiplier=99.0),
    "another rate": _edited(sampling_rate=0.01),
    "another unit": _edited(unit="subject"),
    "a smaller ε": _edited(epsilon={"add-remove": 0.01, "zero-out": 0.01, "replace-one": 0.01}),
    "another run": _edited(run="0" * 16),
    "another ledger": _edited(ledger_hash="0" * 64),
    "a longer ledger": _edited(ledger_lines=99),
    "a ledger that was cut": _ledger_cut,
    "a run that went on": _paid_more,
    "no ledger": _edited(ledger_lines=0, ledger_hash=""),
    "less than no ledger": _edited(ledger_lines=-1),
    "a rehearsal": _edited(statement="rehearsal"),
    "a headline below its own steps": lambda folder: _edited(
        own_epsilon=certificate_in(folder)["epsilon"], epsilon=dict.fromkeys(certificate_in(folder)["epsilon"], 0.01)
    )(folder),
    "weights of nobody's": _others_weights,
}


@pytest.mark.parametrize("difference", DIFFERENCES)
def test_whatever_differs_is_seen(difference: str, config: Build, tmp_path: Path, fresh_home: Path) -> None:
    folder = run_training(config(), tmp_path / "run")
    assert verified(folder)
    DIFFERENCES[difference](folder)
    assert not verified(folder)


def test_a_home_put_back_from_an_older_copy_is_seen(config: Build, tmp_path: Path, fresh_home: Path) -> None:
    """Nothing inside the home can tell; the certificate remembers how long the ledger was."""
    import shutil

    run_training(config(), tmp_path / "first")
    shutil.copytree(fresh_home, tmp_path / "backup")
    second = run_training(config(), tmp_path / "second")
    assert verified(second)
    shutil.rmtree(fresh_home)
    shutil.copytree(tmp_path / "backup", fresh_home)
    assert Ledger(certificate_in(second)["dataset_fingerprint"]).verify()
    assert not verified(second) and verified(tmp_path / "first")


def test_a_certificate_cannot_be_lent_to_another_run(config: Build, tmp_path: Path, fresh_home: Path) -> None:
    """Also not to one that read nothing by the ledger: both runs are honest, and the hand between them is not."""
    private = run_training(config(), tmp_path / "private")
    open_one = run_training(config(method="non-private"), tmp_path / "open")
    public = run_training(config(method="public-only"), tmp_path / "public")
    assert verified(private) and verified(open_one) and verified(public)
    for lender, borrower in ((private, open_one), (public, open_one), (public, private)):
        lent = certificate_in(lender) | {"weights_sha256": certificate_in(borrower)["weights_sha256"]}
        whole = Ledger(lent["dataset_fingerprint"]).lines()
        lent |= {"ledger_lines": len(whole), "ledger_hash": whole[-1]["hash"]}
        (tmp_path / "lent.json").write_text(json.dumps(lent))
        assert not all(check.passed for check in verify_certificate(borrower / "model.safetensors", tmp_path / "lent.json"))


def test_the_certificate_is_written_before_the_weights(
    config: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_home: Path
) -> None:
    def stop(self: RunFolder, body: bytes) -> None:
        raise OSError(28, "No space left on device", "model.safetensors")

    monkeypatch.setattr(RunFolder, "save_weights", stop)
    with pytest.raises(OSError, match="No space"):
        run_training(config(), tmp_path / "run")
    assert (tmp_path / "run" / "certificate.json").is_file() and not (tmp_path / "run" / "model.safetensors").exists()


def test_a_certificate_never_stands_beside_a_run_that_goes_on(
    config: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_home: Path
) -> None:
    folder, whole = tmp_path / "run", config(epochs=1)
    with pytest.raises(KeyboardInterrupt):
        run_training(whole, folder, StopsAt(2))
    assert verified(folder) and certificate_in(folder)["steps"] == 2
    present: list[bool] = []
    draw = PoissonSampler.draw

    def look(self: PoissonSampler) -> torch.Tensor:
        present.append(any((folder / name).exists() for name in ("certificate.json", "certificate.md", "metrics.json")))
        return draw(self)

    monkeypatch.setattr(PoissonSampler, "draw", look)
    with pytest.raises(RuntimeError):
        run_training(whole, folder, StopsAt(4, RuntimeError), resume=True)
    assert present == [False, False] and not (folder / "certificate.json").exists()
    run_training(whole, folder, resume=True)
    assert verified(folder) and certificate_in(folder)["steps"] == 5


# ---- what the ledger says ------------------------------------------------------------------------------------------------


def test_numbers_come_from_the_ledger(config: Build, tmp_path: Path, fresh_home: Path) -> None:
    """A trainer whose settings were changed after it paid still certifies what it paid for."""
    whole = config(epochs=1)
    trainer = Trainer(prepare(whole, Progress()), RunFolder.create(tmp_path / "run", whole), Progress())
    trainer.train()
    changed = replace(trainer.setup, noise_multiplier=99.0, sampling_rate=0.001)
    before, after = (certificate_of(setup, trainer.noised, trainer.standing, "run") for setup in (trainer.setup, changed))
    assert (after.noise_multiplier, after.sampling_rate, after.steps) == (before.noise_multiplier, before.sampling_rate, 5)
    assert after.epsilon == before.epsilon


def test_after_a_crash_epsilon_is_that_of_what_was_paid(
    config: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_home: Path
) -> None:
    """Steps that were paid for and lost count: the noise that covered them may have left."""
    monkeypatch.setattr(loop, "_LEDGER_SHARE", 1.0)
    monkeypatch.setattr(loop, "_LEDGER_BLOCK", 3)
    whole = config(epochs=2)
    with pytest.raises(RuntimeError):
        run_training(whole, tmp_path / "run", StopsAt(7, RuntimeError))
    run_training(whole, tmp_path / "run", resume=True)
    body = certificate_in(tmp_path / "run")
    state = torch.load(tmp_path / "run" / "checkpoint" / "state.pt", weights_only=True)
    spends = Ledger(body["dataset_fingerprint"]).spends()
    assert body["steps"] == 10 == sum(spend.steps for spend in spends) > state["step"]
    plan = SampledGaussian(body["noise_multiplier"], body["sampling_rate"], 10)
    taken = replace(plan, steps=state["step"])
    assert body["epsilon"]["zero-out"] == pytest.approx(epsilon([plan], 1e-3), rel=1e-6)
    assert body["epsilon"]["zero-out"] > epsilon([taken], 1e-3)


@pytest.mark.parametrize(
    "change", ["dataset", "set of annotations", "number of units", "number of steps", "sampling rate", "noise multiplier"]
)
def test_going_on_with_something_else_is_refused(
    change: str, config: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_home: Path
) -> None:
    whole = config(epochs=1)
    with pytest.raises(KeyboardInterrupt):
        run_training(whole, tmp_path / "run", StopsAt(2))
    real = prepare

    def other(settings: RunConfig, progress: Progress, **_: Any) -> Any:
        setup = real(settings, progress)
        if change == "dataset":
            prints = setup.data.fingerprints.take(np.arange(30))
            return replace(setup, data=replace(setup.data, fingerprints=prints))
        if change == "set of annotations":
            # One joint of one person, by a pixel.
            joints = setup.private.joints.copy()
            joints[7, 3, 0] += 1
            return replace(setup, private=setup.private.changed(joints=joints))
        if change == "number of steps":
            return replace(setup, steps=setup.steps + 1)
        if change == "number of units":
            setup.units.members = setup.units.members[:-1]
            return setup
        return replace(setup, **{change.replace(" ", "_"): getattr(setup, change.replace(" ", "_")) * 1.01})

    monkeypatch.setattr(running, "prepare", other)
    monkeypatch.setattr(PoissonSampler, "draw", lambda self: pytest.fail("a private batch was drawn"))
    certified = (tmp_path / "run" / "certificate.json").read_bytes()
    with pytest.raises(HalfmaskError, match=f"another .*{change}"):
        run_training(whole, tmp_path / "run", resume=True)
    assert (tmp_path / "run" / "certificate.json").read_bytes() == certified, "what was refused withdraws nothing"


def test_a_ledger_that_was_lost_is_not_made_up_for(
    config: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_home: Path
) -> None:
    whole = config(epochs=1)
    with pytest.raises(KeyboardInterrupt):
        run_training(whole, tmp_path / "run", StopsAt(2))
    key = (fresh_home / "fingerprint.key").read_bytes()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "fingerprint.key").write_bytes(key)
    monkeypatch.setenv("HALFMASK_HOME", str(tmp_path / "other"))
    with pytest.raises(HalfmaskError, match="the ledger here knows of 0"):
        run_training(whole, tmp_path / "run", resume=True)


def test_a_folder_is_worked_on_by_one_process(config: Build, tmp_path: Path, fresh_home: Path) -> None:
    whole = config(epochs=1)
    seen: list[str] = []

    class TriesAgain(Progress):
        def step(self, step: int, total: int, public_loss: float | None, epsilon: float | None) -> None:
            if step == 2:
                with pytest.raises(HalfmaskError) as refused:
                    run_training(whole, tmp_path / "run", resume=True)
                seen.append(str(refused.value))

    run_training(whole, tmp_path / "run", TriesAgain())
    assert len(seen) == 1 and "another process" in seen[0]
    assert sum(spend.steps for spend in _ledger_of(tmp_path / "run").spends()) == 5


# ---- what the headline says ----------------------------------------------------------------------------------------------


def test_a_seed_that_is_written_down_voids_the_promise(config: Build, tmp_path: Path, fresh_home: Path) -> None:
    folder = run_training(replace(config(), insecure_seed=1), tmp_path / "run")
    body = certificate_in(folder)
    assert set(body["epsilon"].values()) == {"infinity"} and body["ledger_total"] == "infinity"
    assert any("subtract the noise" in line for line in body["unaccounted_reads"])
    assert "no privacy guarantee" in (folder / "certificate.md").read_text()
    assert _ledger_of(folder).total(1e-3, Adjacency.ZERO_OUT) == math.inf
    later = certificate_in(run_training(config(), tmp_path / "later"))
    assert later["epsilon"]["zero-out"] < 1 and later["ledger_total"] == "infinity"


@pytest.mark.parametrize(("delta", "warned"), [(0.03, True), (0.02, False)])
def test_a_delta_that_protects_nobody_stands_in_the_certificate(
    delta: float, warned: bool, config: Build, tmp_path: Path, fresh_home: Path
) -> None:
    folder = run_training(config(delta=delta), tmp_path / "run")
    assert bool(certificate_in(folder)["cautions"]) == warned
    assert ("not below 1/N" in (folder / "certificate.md").read_text()) == warned


def test_a_rehearsal_promises_nothing(config: Build, tmp_path: Path, fresh_home: Path) -> None:
    folder = run_training(config("rehearsal=true", method="feature", batch=4), tmp_path / "run")
    body, page = certificate_in(folder), (folder / "certificate.md").read_text()
    assert body["statement"] == "rehearsal" and set(body["epsilon"].values()) == {None} and not body["own_epsilon"]
    assert page.startswith("# Rehearsal") and "This is not a certificate" in page
    assert "Privacy certificate" not in page and "probability differs" not in page and "| ε (" not in page
    assert _ledger_of(folder).spends() == []


def test_weights_of_an_earlier_run_on_the_same_people_carry_its_cost(config: Build, tmp_path: Path, fresh_home: Path) -> None:
    first = run_training(config(), tmp_path / "first")
    alone = certificate_in(first)["epsilon"]["zero-out"]
    # Renamed, cut to the backbone's and the head's tensors, saved again: still the same weights.
    copies = {"as it is": first / "model.safetensors", "checkpoint": first / "checkpoint" / "state.pt"}
    save_file({name: tensor.clone() for name, tensor in load_file(first / "model.safetensors").items()}, tmp_path / "copy.safetensors")
    copies["saved again"] = tmp_path / "copy.safetensors"
    for number, (name, path) in enumerate(copies.items()):
        folder = run_training(config(f"model.weights={path}", "data.private=39"), tmp_path / f"next{number}")
        body = certificate_in(folder)
        assert body["composed_with"] == [certificate_in(first)["run"]], name
        assert body["epsilon"]["zero-out"] > max(body["own_epsilon"]["zero-out"], alone) * 1.05
        spends = [*_ledger_of(first).spends(), *(s for s in _ledger_of(folder).spends() if s.run == body["run"])]
        assert body["epsilon"]["zero-out"] == pytest.approx(total_epsilon(spends, 1e-3, Adjacency.ZERO_OUT, "rdp"))
        assert verified(folder)
    third = run_training(config(f"model.weights={tmp_path / 'next0' / 'model.safetensors'}"), tmp_path / "third")
    assert len(certificate_in(third)["composed_with"]) == 2, "and so do the weights behind those"


def test_a_headline_that_forgets_the_runs_behind_is_seen(config: Build, tmp_path: Path, fresh_home: Path) -> None:
    first = run_training(config(), tmp_path / "first")
    second = run_training(config(f"model.weights={first / 'model.safetensors'}", "data.private=39"), tmp_path / "second")
    honest = certificate_in(second)
    assert verified(second) and honest["epsilon"]["zero-out"] > honest["own_epsilon"]["zero-out"]
    for forged in ({"epsilon": honest["own_epsilon"]}, {"composed_with": []}, {"epsilon": honest["own_epsilon"], "composed_with": []}):
        (second / "certificate.json").write_text(json.dumps(honest | forged))
        assert not verified(second), forged
    (second / "certificate.json").write_text(json.dumps(honest))
    _ledger_of(first).append(replace(_ledger_of(first).spends()[-1], run="later"))
    assert verified(second)


def test_public_steps_do_not_launder_weights(config: Build, tmp_path: Path, fresh_home: Path) -> None:
    """A run that spends nothing, from weights that cost something, and a third from its weights: the first is still behind them."""
    first = run_training(config(), tmp_path / "first")
    name, path = certificate_in(first)["run"], first / "model.safetensors"
    for number, settings in enumerate((("method=public-only",), ("method=feature", "rehearsal=true", "batch=4"))):
        between = run_training(config(f"model.weights={path}", *settings), tmp_path / f"between{number}")
        assert verified(between)
        last = run_training(config(f"model.weights={between / 'model.safetensors'}"), tmp_path / f"last{number}")
        assert certificate_in(last)["composed_with"] == [name], settings
        assert certificate_in(last)["epsilon"]["zero-out"] > certificate_in(first)["epsilon"]["zero-out"]


def test_a_checkpoint_is_known_wherever_it_lies(config: Build, tmp_path: Path, fresh_home: Path) -> None:
    """Weights of a moment in the middle of a run: in no list of released models, and out of its folder."""
    whole = config(epochs=1)
    with pytest.raises(RuntimeError):
        run_training(whole, tmp_path / "first", StopsAt(5, RuntimeError))
    state = torch.load(tmp_path / "first" / "checkpoint" / "state.pt", weights_only=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "first" / "checkpoint" / "state.pt").rename(tmp_path / "elsewhere" / "nice weights.pth")
    second = run_training(config(f"model.weights={tmp_path / 'elsewhere' / 'nice weights.pth'}"), tmp_path / "second")
    assert state["step"] == 5 and certificate_in(second)["composed_with"] == [state["run"]]


def test_weights_of_strangers_cost_nothing(config: Build, tmp_path: Path, fresh_home: Path) -> None:
    first = run_training(config("data.seed=5"), tmp_path / "first")
    body = certificate_in(run_training(config(f"model.weights={first / 'model.safetensors'}"), tmp_path / "second"))
    assert body["composed_with"] == [] and body["epsilon"]["zero-out"] < 0.81


# ---- what stays public ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [("method=public-only",), ("method=feature",), ("method=feature", "rehearsal=true", "batch=4")])
def test_what_a_run_took_to_be_public_stands_in_every_later_certificate(
    settings: tuple[str, ...], config: Build, tmp_path: Path, fresh_home: Path
) -> None:
    before = certificate_in(run_training(config(), tmp_path / "before"))
    run_training(config(*settings), tmp_path / "open")
    after = run_training(config(), tmp_path / "after")
    assert before["already_public"] == []
    (line,) = certificate_in(after)["already_public"]
    assert "Gaussian blur" in line and "labels" in line
    assert line in (after / "certificate.md").read_text()
    related = certificate_in(run_training(config("data.private=20", batch=4), tmp_path / "related"))
    assert related["already_public"] == [line]


def test_records_given_up_leave_every_later_run(config: Build, tmp_path: Path, fresh_home: Path) -> None:
    first = run_training(config("subspace.source=private", method="projected", unit="image", batch=4), tmp_path / "first")
    gone = set(certificate_in(first)["public_record_hashes"])
    assert gone and _ledger_of(first).total(1e-3, Adjacency.ZERO_OUT) < math.inf, "those records, not the dataset"
    for seed in (0, 7):
        again = prepare(config("subspace.source=private", method="projected", unit="image", batch=4, seed=seed), Progress())
        assert again.basis is not None and again.basis.prints is not None and again.private.prints is not None
        assert {row.tobytes().hex() for row in again.basis.prints.exact} == gone, "used again, whatever the seed"
        assert not {row.tobytes().hex() for row in again.private.prints.exact} & gone
    plain = prepare(config(unit="image", batch=4), Progress())
    assert plain.private.prints is not None and not {row.tobytes().hex() for row in plain.private.prints.exact} & gone
    assert certificate_in(run_training(config(unit="image", batch=4), tmp_path / "plain"))["already_public"]


@pytest.mark.parametrize("unit", ["crop", "image", "subject"])
def test_a_run_that_gave_people_up_goes_on_with_the_others(unit: str, config: Build, tmp_path: Path, fresh_home: Path) -> None:
    """By then the ledger says that all on their photographs are public; nobody may leave who had not left before."""
    settings = config("subspace.source=private", "subspace.samples=6", method="projected", unit=unit, batch=2, epochs=1)
    with pytest.raises(KeyboardInterrupt):
        run_training(settings, tmp_path / "run", StopsAt(2))
    before = certificate_in(tmp_path / "run")
    run_training(settings, tmp_path / "run", resume=True)
    after = certificate_in(tmp_path / "run")
    assert after["units"] == before["units"] and verified(tmp_path / "run")
    assert set(after["public_record_hashes"]) <= set(before["public_record_hashes"])


def test_a_run_that_no_budget_admits_leaves_no_folder(config: Build, tmp_path: Path, fresh_home: Path) -> None:
    run_training(config("budget=1.0"), tmp_path / "first")
    with pytest.raises(HalfmaskError, match="budget"):
        run_training(config(), tmp_path / "second")
    assert not (tmp_path / "second").exists()
