"""What a run takes to be public of its people, when the ledger learns of it, and what was looked at besides."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from torch import Tensor

from halfmask.data.figures_records import figures_records
from halfmask.data.prints import named_prints
from halfmask.privacy.account import RAW, VIEWS, Account, Publication
from halfmask.privacy.adjacency import Adjacency
from halfmask.training.config import RunConfig
from halfmask.training.progress import Progress
from halfmask.training.public import PublicHalf
from halfmask.training.running import run_training
from halfmask.training.setup import prepare
from halfmask.training.spending import publications_of

pytestmark = pytest.mark.usefixtures("quick_accounting", "one_thread")
Build = Callable[..., RunConfig]


@pytest.fixture
def config(tiny_config: Build) -> Build:
    return lambda *assignments, **flags: replace(tiny_config(*assignments, **flags), insecure_seed=None)


# ---- what is public ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rehearsal", [False, True])
def test_a_rehearsal_gives_nobodys_image_up(rehearsal: bool, config: Build, fresh_home: Path) -> None:
    """Its subspace is spanned by views: whoever was chosen for that is still there to be protected."""
    words = (f"rehearsal={str(rehearsal).lower()}", "subspace.source=private", "subspace.samples=4", "batch=4")
    found = publications_of(prepare(config(*words, method="feature-projective"), Progress()))
    assert [one.what for one in found] == ([VIEWS] if rehearsal else [VIEWS, RAW])
    assert all(one.records == () for one in found if one.what == VIEWS) and (rehearsal or len(found[1].records) > 0)


def test_it_is_written_down_before_it_is_used(config: Build, tmp_path: Path, fresh_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The public steps that come first show views to the weights: the ledger knows of the views before."""
    seen: list[list[str]] = []
    real = PublicHalf.gradient

    def look(self: PublicHalf) -> Tensor:
        seen.append(self.setup.account.publications())
        return real(self)

    monkeypatch.setattr(PublicHalf, "gradient", look)
    run_training(config("public.first=1", method="public-only"), tmp_path / "run")
    assert seen and all(any("Gaussian blur" in words for words in one) for one in seen)


def test_subjects_with_another_picture_in_public_are_left_out(config: Build, fresh_home: Path) -> None:
    """Weights that were trained on one picture of a subject know the subject: nothing can be promised to them as a subject."""
    subject = config(unit="subject", batch=2)
    before = prepare(subject, Progress())
    people = figures_records("private", 40, size=(64, 48))
    assert people.subjects is not None
    known = people.subjects[0]
    elsewhere = named_prints(["another picture"], [f"figures/private/0/{known}"])
    hashes = tuple(row.tobytes().hex() for row in elsewhere.exact)
    Account(elsewhere).begin(None, None, publications=[Publication(RAW, "weights were trained on it", hashes)])
    after = prepare(subject, Progress())
    assert after.private.subjects is not None and known not in after.private.subjects
    assert len(after.units) == len(before.units) - 1
    assert len(prepare(config(), Progress()).private) == 40, "a crop is another crop"


# ---- what was looked at --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [("method=public-only",), ("method=feature", "rehearsal=true", "batch=4"), ("method=dpsgd",)])
def test_a_declared_look_ends_the_account_whatever_the_method(
    settings: tuple[str, ...], config: Build, tmp_path: Path, fresh_home: Path
) -> None:
    """A run that spends nothing carries nothing into the ledger by its steps."""
    run_training(config(*settings, "declared_reads=[a look at the faces]"), tmp_path / "run")
    account = prepare(config(), Progress()).account
    assert account.total(1e-3, Adjacency.ZERO_OUT) == math.inf
    assert any("a look at the faces" in spend.unprotected for spend in account.spends())


@pytest.mark.parametrize("even_so", [True, False])
def test_going_on_even_so_changes_nothing_of_the_account(even_so: bool, config: Build, tmp_path: Path, fresh_home: Path) -> None:
    """It goes past a doubt about what can be learnt, and past nothing else: the whole plan is reserved before the first step."""
    whole = replace(config("subspace.dim=1", method="projected", epsilon=100.0, batch=20, epochs=5.0), even_so=even_so)
    run_training(whole, tmp_path / "run")
    ledger = prepare(whole, Progress()).account.ledger
    (plan,) = ledger.lines("reserve")
    assert plan["last_step"] + 1 == 10 == sum(spend.steps for spend in ledger.spends())
    kinds = [line["kind"] for line in ledger.lines()]
    assert kinds.index("reserve") < kinds.index("spend")
