"""Clips through the real trainer: what is public is learnt from exactly and owes nothing to what is protected, which is noised."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import halfmask.tasks.action as action
from halfmask.audit.own import audit_loss
from halfmask.data.clip_masks import OwnMasks
from halfmask.data.clip_records import clip_records
from halfmask.data.clips import ClipRecords, Film, Take
from halfmask.data.records import REST, VIEW, Datasets
from halfmask.errors import HalfmaskError
from halfmask.gradients.engine import check_records_apart
from halfmask.models.mvit import MViT
from halfmask.privacy.certificate import Certificate
from halfmask.tasks.action import ActionTask, action_loss, protected_shares
from halfmask.training.certify import certificate_of
from halfmask.training.checkpoint import plan_facts
from halfmask.training.config import RunConfig, build_config
from halfmask.training.loop import Trainer
from halfmask.training.outputs import RunFolder
from halfmask.training.progress import Progress
from halfmask.training.public import PublicHalf
from halfmask.training.setup import prepare
from halfmask.views.tokens import Tokens

pytestmark = pytest.mark.usefixtures("quick_accounting", "one_thread", "fresh_home", "tiny_mvit")
Clips = Callable[..., ClipRecords]
FRAMES, SIDE, STORED = 4, 32, 48
CLASSES = ("fall", "sit down", "stand up")


def config_of(*assignments: str, **flags: Any) -> RunConfig:
    recipe = {
        "task": "action",
        "method": "masked",
        "strategy": "finetune",
        "epsilon": 5.0,
        "delta": 1e-3,
        "batch": 3,
        "epochs": 1,
        "insecure_seed": 1,
        "even_so": True,
        "model": {"size": "tiny", "weights": None, "frames": FRAMES, "side": SIDE},
        "view": {"name": "tokens"},
        "subspace": {"samples": 4, "dim": 2},
    }
    return build_config(recipe, flags, list(assignments))


class Stored:
    """A film on disk, as far as the loader knows: its stamp changes with what is in it."""

    def __init__(self, film: Film):
        self.film, self.stamp = film, str(hash(film.frames.tobytes() + film.person.tobytes()))

    def __call__(self) -> Film:
        return self.film


def films(count: int = 6, seed: int = 0) -> list[Film]:
    """Larger than the network's frames, so that they are resampled: somebody stands before noise."""
    rng = np.random.default_rng(seed)
    made = []
    for number in range(count):
        person = np.zeros((FRAMES, STORED, STORED), bool)
        person[:, 4:44, 6 + number : 32 + number] = True
        made.append(Film(rng.integers(0, 256, (FRAMES, STORED, STORED, 3), dtype=np.uint8), person=person))
    return made


def clips_of(some: list[Film], protect: str = "background", **settings: Any) -> ClipRecords:
    takes = [
        Take(f"clip {number}", CLASSES[number % 3], Stored(film), video=f"video {number // 2}", subject=f"person {number // 4}")
        for number, film in enumerate(some)
    ]
    return clip_records(takes, CLASSES, FRAMES, SIDE, protect, name="kept", masks=OwnMasks("drawn by hand"), workers=1, **settings)[0]


def setup_of(config: RunConfig, records: ClipRecords, public: ClipRecords | None = None, test: ClipRecords | None = None):
    tokens = ActionTask(config).with_tokens
    parts = [None if part is None else tokens(part) for part in (public, test)]
    return prepare(config, Progress(), Datasets(tokens(records), *parts, "kept"))


def trainer_of(config: RunConfig, records: ClipRecords, folder: Path, public: ClipRecords | None = None) -> Trainer:
    return Trainer(setup_of(config, records, public), RunFolder.create(folder, config), Progress())


def with_protected_pixels_altered(some: list[Film]) -> list[Film]:
    """Stored pixels, before anything is resampled: everything outside the person, and what lies on its outline."""
    rng = np.random.default_rng(99)
    found = []
    for film in some:
        inner = np.zeros_like(film.person)
        inner[:, 1:-1, 1:-1] = film.person[:, 2:, 1:-1] & film.person[:, :-2, 1:-1] & film.person[:, 1:-1, 2:] & film.person[:, 1:-1, :-2]
        noise = rng.integers(0, 256, film.frames.shape, dtype=np.uint8)
        found.append(replace(film, frames=np.where(inner[..., None], film.frames, noise)))
    return found


# ---- the two halves ------------------------------------------------------------------------------------------------------

CHANGED = ("augment.times=2", "augment.copies=2")


@pytest.mark.parametrize(
    ("strategy", "settings"),
    [
        ("finetune", ()),
        ("full", ()),
        ("top", ()),
        ("finetune", CHANGED),
        ("full", CHANGED),
        ("finetune", ("view.options.edges=cleared",)),
        ("full", ("view.options.edges=cleared",)),
    ],
)
def test_the_public_gradient_owes_nothing_to_protected_stored_pixels(strategy: str, settings: tuple[str, ...], tmp_path: Path) -> None:
    """Bit for bit, through loader, view, cache and the real trainer; and the private half does depend on them."""
    some = films()
    config = config_of(*settings, strategy=strategy)
    gradients, private, weights = [], [], []
    for name, kept in (("as it is", some), ("altered", with_protected_pixels_altered(some))):
        trainer = trainer_of(config, clips_of(kept), tmp_path / name)
        assert type(trainer.exact) is PublicHalf and trainer.noised.publish is None and trainer.setup.private.shown == REST
        assert bool(trainer.setup.private.features) == (strategy != "full")
        gradients.append([trainer.exact.gradient() for _ in range(4)])
        everyone = trainer.noised.units.records_of(torch.arange(len(trainer.noised.units)))
        private.append(trainer.noised.summed(trainer.noised.pieces(trainer.setup.private, *everyone, 0)).flat())
        weights.append(trainer.setup.model.state_dict())
    assert all(torch.equal(one, weights[1][name]) for name, one in weights[0].items())
    assert all(torch.equal(one, other) for one, other in zip(*gradients, strict=True)) and float(gradients[0][0].norm()) > 0
    assert float((private[0] - private[1]).norm()) > 1e-3 * float(private[0].norm()), "the noised half learns nothing of what it protects"


@pytest.mark.parametrize(
    "fault",
    [
        lambda self, record: self._honest(record | {"hidden": np.zeros_like(record["hidden"])}),
        lambda self, record: replace(self._honest(record), public=self._honest(record).public | {"clip": record["clip"]}),
    ],
    ids=["no mask", "not cleared"],
)
def test_that_test_sees_a_view_that_shows_protected_pixels(fault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tokens, "_honest", Tokens.of, raising=False)
    monkeypatch.setattr(Tokens, "of", fault)
    with pytest.raises(AssertionError):
        test_the_public_gradient_owes_nothing_to_protected_stored_pixels("full", ("view.options.edges=cleared",), tmp_path)


def test_the_rest_sees_tokens_with_something_protected_and_no_others(tmp_path: Path) -> None:
    """Pixels far inside of what is public have no part in the private half; those that are protected have."""
    # Everyone is so large that tokens of the middle are far from any that straddles the border.
    large = np.zeros((FRAMES, STORED, STORED), bool)
    large[:, 2:46, 2:46] = True
    some = [replace(film, person=large) for film in films()]
    inside = []
    for film in some:
        frames = film.frames.copy()
        middle = np.argwhere(film.person[0]).mean(0).astype(int)
        frames[:, middle[0] - 2 : middle[0] + 2, middle[1] - 2 : middle[1] + 2] ^= 255
        inside.append(replace(film, frames=frames))
    sums = []
    for name, kept in (("as it is", some), ("inside", inside)):
        trainer = trainer_of(config_of(strategy="full"), clips_of(kept), tmp_path / name)
        everyone = trainer.noised.units.records_of(torch.arange(len(trainer.noised.units)))
        sums.append((trainer.noised.summed(trainer.noised.pieces(trainer.setup.private, *everyone, 0)).flat(), trainer.exact.gradient()))
    assert torch.equal(sums[0][0], sums[1][0]) and not torch.equal(sums[0][1], sums[1][1])


def test_feature_shows_the_private_half_whole_clips(random_clips: Clips, tmp_path: Path) -> None:
    trainer = trainer_of(config_of(method="feature", strategy="full"), random_clips(), tmp_path / "run")
    rows, index, weight = trainer.noised.units.records_of(torch.arange(3))
    batch, _ = trainer.noised.shown(trainer.setup.private, rows, index, weight, 0)
    assert batch["tokens"].all() and torch.equal(batch["clip"], trainer.setup.private.batch(rows)["clip"])
    assert not trainer.setup.private.batch(rows, VIEW)["tokens"].all()


@pytest.mark.parametrize("times", [0, 2])
def test_residuals_compare_the_whole_clip_with_the_view_and_its_own_tokens(random_clips: Clips, tmp_path: Path, times: int) -> None:
    config = config_of("private.residual=true", f"augment.times={times}", method="feature", strategy="full")
    trainer = trainer_of(config, random_clips(), tmp_path / "run")
    private, count = trainer.setup.private, 3 * max(1, times)
    rows, index, weight = trainer.noised.units.records_of(torch.arange(3))
    batch, units = trainer.noised.shown(private, rows, index, weight, 0)
    assert len(batch["clip"]) == len(units) == 2 * count
    whole, view = ({name: batch[name][some] for name in ("clip", "tokens")} for some in (slice(count), slice(count, None)))
    assert whole["tokens"].all() and view["tokens"].any() and not view["tokens"].all()
    cleared = view["clip"] != whole["clip"]
    assert cleared.any() and (view["clip"][cleared] == 115).all()
    if not times:
        assert all(torch.equal(view[name], private.batch(rows, VIEW)[name]) for name in view)


@pytest.mark.parametrize(("unit", "count", "kept"), [("clip", 8, 8), ("video", 4, 8), ("subject", 2, 6)])
def test_units(random_clips: Clips, tmp_path: Path, unit: str, count: int, kept: int) -> None:
    config = config_of("batch=1", "records_per_unit=3", unit=unit, strategy="top")
    half = trainer_of(config, random_clips(), tmp_path / "run").noised
    assert len(half.units) == count
    rows, index, weight = half.units.records_of(torch.arange(count))
    assert len(rows) == kept and sorted(set(index.tolist())) == list(range(count))
    found = half.clipped(*half.shown(half.records, rows, index, weight, 0))
    assert len(found.norms) == count
    alone = half.clipped(*half.shown(half.records, *half.units.records_of(torch.tensor([1])), 0))
    assert float(alone.flat().norm()) <= half.mechanism.clip_norm * (1 + 1e-6)


def test_an_empty_batch_is_noised_all_the_same(random_clips: Clips, tmp_path: Path) -> None:
    for strategy in ("finetune", "full"):
        half = trainer_of(config_of(strategy=strategy), random_clips(), tmp_path / strategy).noised
        half = replace(half, poisson=replace_draw(half.poisson))
        assert float(half.release(0).gradient.norm()) > 0


def replace_draw(poisson: Any) -> Any:
    class Nobody:
        expected_batch = poisson.expected_batch

        def draw(self) -> torch.Tensor:
            return torch.zeros(0, dtype=torch.long)

    return Nobody()


# ---- what was computed once ----------------------------------------------------------------------------------------------


def test_other_masks_borders_and_parts_are_never_found_in_the_cache(tmp_path: Path) -> None:
    """One home for all: whatever decides what is public names what was computed."""
    some = films()
    narrower = [replace(film, person=film.person & (np.arange(STORED) < 24)) for film in some]
    found = {}
    for name, kept, protect, settings in (
        ("background", some, "background", ()),
        ("person", some, "person", ()),
        ("cleared", some, "background", ("view.options.edges=cleared",)),
        ("other masks", narrower, "background", ()),
    ):
        setup = setup_of(config_of(f"data.protect={protect}", *settings), clips_of(kept, protect))
        view = setup.private.part(VIEW).rows(np.arange(len(some)))
        found[name] = view["clip"], np.array(setup.private.features[VIEW]), np.array(setup.private.features[REST])
        fresh = [Tokens(setup.view.edges).of({"clip": clip, "hidden": hidden}).public for clip, hidden in zip(*raw(setup), strict=True)]
        assert np.array_equal(view["clip"], [one["clip"] for one in fresh]) and np.array_equal(
            view["tokens"], [one["tokens"] for one in fresh]
        )
        exact = (
            torch.cat([action.lower_features(setup.model, batch) for batch in (plain(setup, VIEW), plain(setup, REST))]).detach().numpy()
        )
        assert np.allclose(np.concatenate(found[name][1:]), exact, atol=2e-3)
    for one in found:
        for other in found:
            if one != other:
                assert not np.array_equal(found[one][1], found[other][1])
                assert {one, other} == {"background", "cleared"} or not np.array_equal(found[one][0], found[other][0])


def raw(setup: Any) -> tuple[np.ndarray, np.ndarray]:
    every = np.arange(len(setup.private))
    return setup.private.private.rows(every)["clip"], setup.private.truth.rows(every)["hidden"]


def plain(setup: Any, source: str) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(rows) for name, rows in setup.private.part(source).rows(np.arange(len(setup.private))).items()}


def test_features_of_a_clip_do_not_depend_on_how_many_others_there_are(random_clips: Clips) -> None:
    """A full batch of whole clips takes the quicker road through the network, and one that is filled up with nobody does not."""
    everyone = random_clips(33)
    whole = {}
    for count in (31, 32, 33):
        setup = setup_of(config_of(method="dpsgd"), everyone.take(np.arange(count)))
        whole[count] = np.array(setup.private.features["private"])
    assert np.array_equal(whole[31], whole[32][:31]) and np.array_equal(whole[32], whole[33][:32])


def test_going_on_with_other_masks_is_going_on_with_other_data(tmp_path: Path) -> None:
    """Another mask would publish what the first one kept back."""
    some = films()
    moved = [replace(film, person=np.roll(film.person, 3, axis=2)) for film in some]
    facts = [plan_facts(setup_of(config_of(strategy="full"), clips_of(kept))) for kept in (some, some, moved)]
    assert facts[0] == facts[1]
    assert {name for name in facts[0] if facts[0][name] != facts[2][name]} == {"set of annotations"}
    plain = [plan_facts(setup_of(config_of(strategy="full", method="dpsgd"), clips_of(kept))) for kept in (some, moved)]
    assert plain[0] == plain[1], "where nothing is published, masks have no part in the plan"


# ---- methods and settings ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["finetune", "full"])
@pytest.mark.parametrize("settings", [(), ("subspace.views=3",), ("subspace.samples=0", "subspace.views=4"), ("private.calibrate=true",)])
def test_the_subspace_is_of_public_clips_shown_as_private_ones_are(
    random_clips: Clips, tmp_path: Path, strategy: str, settings: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = trainer_of(
        config_of(*settings, method="masked-projective", strategy=strategy), random_clips(), tmp_path / "run", random_clips(12, seed=5)
    )
    setup = trainer.setup
    assert setup.watched is not None and setup.watched.shown == REST
    asked: list[torch.Tensor] = []
    honest = ActionTask.calibrate
    monkeypatch.setattr(ActionTask, "calibrate", lambda self, model, batches: honest(self, model, watched(batches, asked)))
    trainer.begin()
    trainer.refresh()
    assert trainer.noised.subspace is not None and trainer.noised.subspace.dimension == 2
    trainer.take_step()
    if "private.calibrate=true" in settings:
        shown = setup.watched.batch(np.arange(len(setup.watched)), REST)
        assert torch.equal(asked[0], shown["features" if strategy == "finetune" else "tokens"]), "sure of what the private half is shown"
    if setup.basis is not None:
        batch, _ = trainer.noised.public_units(setup.basis, 0)
        expected = setup.basis.batch(np.arange(len(setup.basis)), REST)
        assert all(torch.equal(batch[name], expected[name]) for name in expected)


def watched(batches: Any, asked: list[torch.Tensor]) -> Any:
    for batch in batches:
        asked.append(batch.get("features", batch.get("tokens")))
        yield batch


def test_clips_that_are_given_up_leave_with_their_videos(random_clips: Clips) -> None:
    config = config_of("subspace.source=private", "subspace.samples=3", method="masked-projective", strategy="full")
    setup = setup_of(config, random_clips(16))
    gone = 16 - len(setup.private)
    assert len(setup.basis) == 3 and gone % 2 == 0 and gone >= 4
    assert not set(setup.private.units["video"]) & set(setup.basis.units["video"])


def test_one_batch_for_both_halves_is_accounted_as_seen(random_clips: Clips, tmp_path: Path) -> None:
    apart, shared = (setup_of(config_of(f"public.shared_batch={one}", strategy="full"), random_clips()) for one in ("false", "true"))
    assert not apart.visible_batches and shared.visible_batches and shared.plan.visible_batches
    assert shared.noise_multiplier > 1.2 * apart.noise_multiplier


def test_what_has_no_meaning_is_refused(random_clips: Clips) -> None:
    with pytest.raises(HalfmaskError, match="no meaning for method 'masked'"):
        config_of(adjacency="add-remove")
    with pytest.raises(HalfmaskError, match="divides a record in two"):
        config_of("private.residual=true")
    with pytest.raises(HalfmaskError, match="no protected part to rehearse with"):
        config_of("rehearsal=true")
    with pytest.raises(HalfmaskError, match="does not divide records in two"):
        setup_of(replace(config_of(), view=replace(config_of().view, name="blur", options={})), random_clips())
    with pytest.raises(HalfmaskError, match="does not take colour: expected edges"):
        setup_of(config_of("view.options.colour=red"), random_clips())
    with pytest.raises(HalfmaskError, match="edges"):
        setup_of(config_of("view.options.edges=sharp"), random_clips())
    with pytest.raises(HalfmaskError, match="the view reads 'hidden'"):
        records = random_clips()
        setup_of(config_of(), replace(records, truth=records.truth.changed(hidden=None), masks="", protect="", key="no masks"))
    with pytest.raises(HalfmaskError, match="a multiple of 32"):
        config_of("model.side=40")


def test_views_of_frames_serve_feature_methods(random_clips: Clips) -> None:
    config = config_of(method="feature", strategy="full")
    setup = setup_of(replace(config, view=replace(config.view, name="blur", options={"kernel": 9, "sigma": 4.0})), random_clips())
    assert setup.private.shown == "private" and setup.view.describe().startswith("of each frame")


def photographed(count: int, seed: int, first: int = 0) -> list[tuple[str, Film]]:
    """Films of rooms that are told apart: coarse noise, and somebody before it."""
    rng = np.random.default_rng(seed)
    made = []
    for number in range(first, first + count):
        room = cv2.resize(rng.integers(0, 256, (6, 7, 3), dtype=np.uint8), (96, 80), interpolation=cv2.INTER_CUBIC)
        person = np.zeros((FRAMES, 80, 96), bool)
        person[:, 10:70, 30:60] = True
        made.append((f"{seed}/{number}", Film(np.where(person[..., None], np.uint8(90), room[None]), person=person)))
    return made


def mirrored_and_encoded(film: Film) -> Film:
    frames = [cv2.imdecode(cv2.imencode(".jpg", frame, [cv2.IMWRITE_JPEG_QUALITY, 85])[1], cv2.IMREAD_COLOR) for frame in film.frames]
    return replace(film, frames=np.stack(frames)[:, :, ::-1].copy(), person=film.person[:, :, ::-1])


def records_named(some: list[tuple[str, Film]], name: str) -> ClipRecords:
    takes = [Take(take, CLASSES[number % 3], Stored(film), video=take) for number, (take, film) in enumerate(some)]
    return clip_records(takes, CLASSES, FRAMES, SIDE, name=name, masks=OwnMasks("drawn by hand"), workers=1)[0]


@pytest.mark.parametrize("part", ["public", "test"])
def test_a_private_film_in_another_part_is_refused_or_left_out(part: str) -> None:
    """Under another name, mirrored and encoded anew: it is scored openly, or called public, as it is."""
    private, others = photographed(6, 1), photographed(5, 2)
    others.append(("somebody else", mirrored_and_encoded(private[2][1])))
    parts = {part: records_named(others, "others")}
    with pytest.raises(HalfmaskError, match="private"):
        setup_of(config_of(strategy="full"), records_named(private, "mine"), **parts)
    setup = setup_of(config_of("data.recurring=leave-out", strategy="full"), records_named(private, "mine"), **parts)
    assert len(setup.private) == 5 and setup.data.recurring == 1


# ---- what the certificate says -------------------------------------------------------------------------------------------


def test_facts_of_the_masks(random_clips: Clips) -> None:
    records = random_clips(4)
    hidden = np.array(records.truth.rows(np.arange(4))["hidden"])
    hidden[0], hidden[1] = False, True
    some = replace(records, truth=records.truth.changed(hidden=hidden))
    task = ActionTask(config_of())
    shares = protected_shares(some, Tokens())
    assert shares[0] == 0 and shares[1] == 1 and 0 < shares[2] < 1
    text = "\n".join(task.public_facts(Datasets(some)))
    assert "a block that a test has drawn" in text and "**protected is everything but the person**" in text
    assert f"{100 * shares.mean():.1f} %" in text
    assert "that 1 clips have no protected token" in text and "that 1 clips have no public token" in text
    assert "the promise is to one clip" in text
    whole = "\n".join(task.public_facts(Datasets(records)))
    assert "no protected token" not in whole and "no public token" not in whole
    silent = ActionTask(config_of(method="dpsgd", unit="subject")).public_facts(Datasets(records))
    assert silent == [], "nothing of the masks is published"


@pytest.mark.parametrize(
    ("unit", "settings", "stated", "silent"),
    [
        ("clip", (), {}, ("a video (data.clips_per_video", "a person (data.clips_per_subject")),
        ("clip", ("data.clips_per_video=2",), {"video": 2}, ("a person (data.clips_per_subject",)),
        ("clip", ("data.clips_per_video=3", "data.clips_per_subject=4"), {"video": 3, "subject": 4}, ()),
        ("video", ("data.clips_per_video=2",), {}, ("a person (data.clips_per_subject",)),
        ("video", ("data.clips_per_subject=4",), {"subject": 4}, ()),
    ],
)
def test_epsilon_of_larger_units_is_stated_where_the_settings_bound_them(
    random_clips: Clips, tmp_path: Path, unit: str, settings: tuple[str, ...], stated: dict[str, int], silent: tuple[str, ...]
) -> None:
    """Two clips a video and four a person are what the records have, which is no bound of the settings."""
    config = config_of("data.name=mine", "batch=2", *settings, unit=unit, strategy="top", method="dpsgd")
    body = certified(config, random_clips(), tmp_path)
    assert {name: each["most"] for name, each in body.coarser.items()} == stated
    (words,) = [line for line in body.public_assumptions if f"the promise is to one {unit}" in line]
    assert all(one in words for one in silent) and ("no ε is stated" in words) == bool(silent)
    assert words.count("would say so") == len(silent)


def test_a_bound_that_records_in_memory_break_is_not_believed(random_clips: Clips, tmp_path: Path) -> None:
    config = config_of("data.name=mine", "data.clips_per_video=2", "data.clips_per_subject=3", strategy="top", method="dpsgd")
    assert set(certified(config, random_clips(), tmp_path / "two").coarser) == {"video"}
    nobody = random_clips()
    nobody = replace(nobody, units={"video": nobody.units["video"]}, key="nobody is named")
    assert set(certified(config, nobody, tmp_path / "nobody").coarser) == {"video"}


def certified(config: RunConfig, records: ClipRecords, folder: Path) -> Certificate:
    """What a run says after a step whose noise came from the secure source."""
    trainer = trainer_of(replace(config, insecure_seed=None), records, folder)
    trainer.begin()
    trainer.payments.ahead(1, trainer.noised)
    trainer.take_step()
    return certificate_of(trainer.setup, trainer.noised, trainer.standing, "run")


def test_a_clip_that_is_all_public_or_all_protected_trains(random_clips: Clips, tmp_path: Path) -> None:
    """Of the first the noised half is shown nothing but the class token, of the second the exact one."""
    records = random_clips(6)
    hidden = np.array(records.truth.rows(np.arange(6))["hidden"])
    hidden[0], hidden[1] = False, True
    some = replace(records, truth=records.truth.changed(hidden=hidden), key="all or nothing")
    for strategy in ("finetune", "full"):
        trainer = trainer_of(config_of(strategy=strategy), some, tmp_path / strategy)
        assert torch.isfinite(trainer.exact.gradient()).all()
        everyone = trainer.noised.units.records_of(torch.arange(6))
        found = trainer.noised.clipped(*trainer.noised.shown(trainer.setup.private, *everyone, 0))
        assert torch.isfinite(found.flat()).all() and found.nonfinite == 0


# ---- the task ------------------------------------------------------------------------------------------------------------


def test_the_audit_of_the_loss_passes(random_clips: Clips) -> None:
    config = config_of(method="dpsgd", strategy="full")
    task = ActionTask(config)
    records = task.with_tokens(random_clips())
    found = audit_loss(task, task.build(Datasets(records)), records, config)
    assert found["passed"], [check for check in found["checks"] if not check["passed"]]


def test_samples_are_clips_in_part(random_clips: Clips) -> None:
    task = ActionTask(config_of())
    records = task.with_tokens(random_clips())
    model = task.build(Datasets(records))
    for sample in task.samples(model, records):
        check_records_apart(model, task.loss, sample)
        assert set(sample) == set(records.batch(np.arange(2))) and not sample["tokens"].all() and sample["tokens"].any()
        assert all(sample[name].dtype == value.dtype for name, value in records.batch(np.arange(2)).items())


def test_joined_and_planted_clips_keep_their_own_masks(random_clips: Clips) -> None:
    """An audit of a masked method plants clips among others, and a view asks for the masks of all."""
    task = ActionTask(config_of())
    members, strangers = task.with_tokens(random_clips(4)), task.with_tokens(random_clips(6, seed=3))
    chosen = np.array([4, 0, 2])
    planted = task.mislabelled(strangers, members, chosen)
    assert planted.targets.rows(np.arange(3))["label"].tolist() == strangers.targets.rows(np.array([0, 2, 4]))["label"].tolist()
    everyone = members.joined(planted)
    masks = everyone.truth.rows(np.arange(7))["hidden"]
    own = [records.truth.rows(rows)["hidden"] for records, rows in ((members, np.arange(4)), (strangers, chosen))]
    assert np.array_equal(masks, np.concatenate(own))
    assert len(setup_of(config_of(strategy="full"), everyone).private) == 7


def test_strategies(random_clips: Clips) -> None:
    task, model, sizes = ActionTask(config_of()), MViT("tiny", 3, FRAMES, SIDE), {}
    for strategy in ("top", "finetune", "full"):
        task.trainable(model, strategy)
        sizes[strategy] = sum(one.numel() for one in model.parameters() if one.requires_grad)
    assert sizes["top"] == 3 * 16 + 3 and sizes["top"] < sizes["finetune"] < 0.1 * sizes["full"]


def test_features_go_on_to_the_scores_of_the_whole(random_clips: Clips) -> None:
    for strategy in ("top", "finetune"):
        task = ActionTask(config_of(strategy=strategy))
        records = task.with_tokens(random_clips())
        model = task.build(Datasets(records)).eval()
        batch = records.batch(np.arange(4))
        features = task.lower(model).features(batch)
        whole, cached = (action_loss(model, one) for one in (batch, {"features": features, "label": batch["label"]}))
        assert torch.allclose(whole, cached, atol=1e-5)
        assert torch.allclose(task.features(model, batch), task.features(model, {"features": features}), atol=1e-5)


def test_weights_of_other_classes_begin_with_a_head_that_knows_nothing(random_clips: Clips, tmp_path: Path) -> None:
    start = MViT("tiny", 3, FRAMES, SIDE, joints=16)
    save_file(start.state_dict(), tmp_path / "start.safetensors")
    data = Datasets(random_clips())
    body, other = f"model.weights={tmp_path / 'start.safetensors'}", Datasets(random_clips(classes=5))
    model = ActionTask(config_of(body)).build(data)
    assert torch.equal(model.conv_proj.weight, start.conv_proj.weight) and not model.head[1].weight.any() and model.joints is None
    kept = ActionTask(config_of(body, "model.keep_head=true"))
    assert torch.equal(kept.build(data).head[1].weight, start.head[1].weight) and not kept.build(other).head[1].weight.any()
    assert kept.build(other).head[1].weight.shape[0] == 5
    opened = ActionTask(config_of()).open(tmp_path / "start.safetensors")
    assert torch.equal(opened.head[1].weight, start.head[1].weight)
    with pytest.raises(HalfmaskError, match="no embedded weights for an MViT of size 's'"):
        ActionTask(config_of("model.size=s", "model.weights=embedded")).build(data)


def test_scores_and_sharpness(random_clips: Clips) -> None:
    task = ActionTask(config_of())
    records = task.with_tokens(random_clips(9))
    model = task.build(Datasets(records)).eval()
    scores = task.score(model, records)
    assert 0 <= scores.metrics["accuracy"] <= 100 and set(scores.parts) == set(records.classes)
    assert json.dumps(scores.tables)
    batch = records.batch(np.arange(9))
    with torch.no_grad():
        plain = action_loss(model, batch)
    assert torch.allclose(action_loss(model, batch | {"sharpness": torch.ones(9)}), plain)
    sharpness = task.calibrate(model, [batch])
    with torch.no_grad():
        factors = (0.125, 1.0, 4.0, sharpness)
        tried = {factor: float(action_loss(model, batch | {"sharpness": torch.full((9,), factor)}).sum()) for factor in factors}
    assert min(tried, key=tried.__getitem__) == sharpness
