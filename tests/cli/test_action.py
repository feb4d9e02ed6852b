"""Actions through the real commands: from drawn clips to certificates, scores and labelled videos."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from halfmask.metrics.actions import METRICS
from halfmask.privacy.accounting import SampledGaussian, epsilon
from halfmask.report import picture_rows
from halfmask.report.overlay import contact_sheet
from halfmask.views.tokens import FILL

pytestmark = pytest.mark.usefixtures("quick_accounting", "tiny_mvit")
WORLD = ("data.private=12", "data.public=0", "data.test=6", "data.workers=1", "data.missing_classes=allow")
NETWORK = ("model.size=tiny", "model.weights=null", "model.frames=4", "model.side=64", "subspace.samples=4", "subspace.dim=2")
TINY = ("--even-so", "--epochs", 0.4, "--batch", 6, "--delta", 1e-3, "--epsilon", 5, "--threads", 1)


def setting(*assignments: str) -> list[str]:
    return [part for one in assignments for part in ("--set", one)]


@pytest.fixture(scope="module")
def shared_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home of this file's own: the world is drawn once in it."""
    return tmp_path_factory.mktemp("action-home")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Any]]:
    return {"folder": (tmp_path_factory.mktemp("action-runs"), None)}


@pytest.fixture(autouse=True)
def nobody_was_promised_anything(shared_home: Path) -> None:
    shutil.rmtree(shared_home / "ledgers", ignore_errors=True)


def arguments(method: str, out: Path, *flags: object, changes: tuple[str, ...] = ()) -> list[object]:
    return ["train", "action/figures", "--method", method, *TINY, "--out", out, *flags, *setting(*WORLD, *NETWORK, *changes)]


@pytest.fixture
def run_of(halfmask: Callable[..., Any], made: dict[str, tuple[Path, Any]], shared_home: Path) -> Callable[..., tuple[Path, Any]]:
    """Trains once for each method and each change, and hands the run out again afterwards."""

    def train(method: str, *flags: object, changes: tuple[str, ...] = ()) -> tuple[Path, Any]:
        name = "-".join(str(part) for part in (method, *flags, *changes)).replace("/", "")
        if name not in made:
            shutil.rmtree(shared_home / "ledgers", ignore_errors=True)
            out = made["folder"][0] / name
            result = halfmask(*arguments(method, out, *flags, changes=changes))
            assert result.code == 0, result.err
            made[name] = out, result
        return made[name]

    return train


def certificate(run: Path) -> tuple[dict[str, Any], str]:
    return json.loads((run / "certificate.json").read_text()), (run / "certificate.md").read_text()


@pytest.mark.parametrize("method", ["masked", "public-only", "dpsgd", "feature", "non-private"])
def test_every_method_trains_and_says_what_is_public(run_of, method: str) -> None:
    run, result = run_of(method)
    assert "accuracy" in result.out
    body, text = certificate(run)
    assert body["unit"] == "clip" and body["method"] == method and body["units"] == 12
    has_view = method in ("masked", "public-only", "feature")
    for words in (
        "the action of every clip, and its mask",
        "ψ of every private record",
        "the masks of all clips, which come from exact: the people of the embedded world are drawn",
        "**protected is everything but the person**",
        "the share of protected tokens:",
        "removed before any patch is formed",
    ):
        assert (words in text) == has_view, words
    if method != "non-private":
        assert "the promise is to one clip" in text
    spent = body["epsilon"][body["adjacency"]]
    if method == "public-only":
        assert spent == 0
    elif method == "non-private":
        assert spent in ("infinity", float("inf"), None)
    else:
        assert 3 < spent <= 5
    assert method != "masked" or set(body["epsilon"]) == {"zero-out", "replace-one"}
    scores = json.loads((run / "metrics.json").read_text())
    assert set(scores["metrics"]) <= set(METRICS) and "accuracy" in scores["metrics"] and len(scores["classes"]) >= 12
    assert np.array(scores["confusion"]).sum() == 6


def test_the_person_may_be_what_is_protected(run_of) -> None:
    _, text = certificate(run_of("masked", changes=("data.protect=person", "view.options.edges=cleared"))[0])
    assert "**protected is the person**" in text and "those at the border are cleared of them" in text
    background = certificate(run_of("masked")[0])[1]

    def share(words: str) -> float:
        return float(words.split("the share of protected tokens: ")[1].split(" %")[0])

    assert share(text) < 60 < 80 < share(background)


def test_what_one_run_published_the_next_one_says(halfmask, tmp_path: Path) -> None:
    """The person is public in the first run and the room in the second: together that is the clip."""
    for name, protect in (("first", "background"), ("second", "person")):
        result = halfmask(*arguments("public-only", tmp_path / name, changes=(f"data.protect={protect}",)))
        assert result.code == 0, result.err
    body, text = certificate(tmp_path / "second")
    assert any("everything but the person removed" in words for words in body["already_public"]), body["already_public"]
    assert "everything but the person removed" in text


@pytest.mark.parametrize("unit", ["video", "subject"])
def test_units(run_of, unit: str) -> None:
    body, text = certificate(run_of("masked", "--unit", unit, "--batch", 2)[0])
    assert body["unit"] == unit and 2 <= body["units"] < 12 and f"Take any one {unit}" in text
    assert ("the promise is to one video" in text) == (unit == "video") and "the promise is to one clip" not in text


def test_what_epsilon_is_worth_to_videos_and_people(run_of) -> None:
    """The world bounds how many clips they have: three of a video, four videos of a person."""
    found = {}
    for unit, coarser in (("clip", {"video": 3, "subject": 12}), ("video", {"subject": 4}), ("subject", {})):
        flags = () if unit == "clip" else ("--unit", unit, "--batch", 2)
        body, text = certificate(run_of("masked", *flags)[0])
        assert {name: each["most"] for name, each in body["coarser"].items()} == coarser
        for name, most in coarser.items():
            plan = SampledGaussian(body["noise_multiplier"], body["sampling_rate"], body["steps"], group_size=most)
            assert body["coarser"][name]["epsilon"] == pytest.approx(epsilon([plan], body["delta"], "rdp"))
            assert f"ε to one {name} of up to {most} {unit}s" in text
        assert "no ε is stated" not in text
        found[unit] = body
    worth = found["clip"]["coarser"]
    assert 1.5 * found["clip"]["epsilon"]["zero-out"] < worth["video"]["epsilon"] < worth["subject"]["epsilon"]


@pytest.mark.parametrize("masks", ["own", "none"])
def test_the_page_of_a_comparison_shows_what_is_public_and_says_what_it_is_worth_to_people(
    halfmask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, masks: str
) -> None:
    """Clips without masks have nothing public, and a page all the same."""
    sheets = []
    monkeypatch.setattr(
        picture_rows, "contact_sheet", lambda rows, names, titles: sheets.append((rows, titles)) or contact_sheet(rows, names, titles)
    )
    grid = ("--methods", "dpsgd", "--epsilons", "5", "--out", tmp_path / "table", "--overlays", 2, "--threads", 1)
    small = ("even_so=true", "epochs=0.4", "batch=6", "delta=1e-3", f"data.masks={masks}")
    result = halfmask("compare", "action/figures", *grid, *setting(*WORLD, *NETWORK, *small))
    assert result.code == 0, result.err
    ((rows, titles),) = sheets
    assert titles == ["truth", *(["public view (tokens)"] if masks == "own" else []), "dpsgd ε=5"]
    if masks == "own":
        # Of the people themselves something is left, and of the room nothing.
        truth, public, _ = rows[0]
        painted = (public[:224] == FILL).all(-1)
        assert 0.5 < painted.mean() < 0.99 and not (truth[:224] == FILL).all(-1)[painted].all()
    written = (tmp_path / "table/index.html").read_text()
    assert "to one video of up to 3" in written and "to one subject of up to 12" in written


def test_verify_plan_and_resume(halfmask, run_of, tmp_path: Path) -> None:
    out = tmp_path / "run"
    trained = halfmask(*arguments("masked", out))
    assert trained.code == 0, trained.err
    verified = halfmask("certificate", "verify", out)
    assert verified.code == 0, verified.out + verified.err
    planned = halfmask(
        "plan",
        "action/figures",
        "--method",
        "masked",
        "--batch",
        6,
        "--epochs",
        0.4,
        "--delta",
        1e-3,
        *setting(*WORLD, *NETWORK, "even_so=true"),
    )
    assert planned.code == 0 and "12" in planned.out, planned.err
    assert "--method masked-projective," in planned.out and "suggested recipe: action/figures" in planned.out
    again = halfmask(*arguments("masked", out, "--resume"))
    assert again.code == 0, again.err
    other = halfmask(*arguments("masked", out, "--resume", changes=("data.protect=person",)))
    assert "resume" in other.error or "another" in other.error
    smaller = halfmask(*arguments("masked", out, "--resume", changes=("model.side=32",)))
    assert smaller.code == 2


def test_another_clip_size_is_the_same_account(halfmask, tmp_path: Path) -> None:
    """A budget is people's, not pixels': clips at another size, or of more frames, are the same people's."""
    names = []
    for number, changes in enumerate((("model.side=64",), ("model.side=32", "model.frames=6"))):
        result = halfmask(*arguments("dpsgd", tmp_path / str(number), changes=changes))
        assert result.code == 0, result.err
        names.append(certificate(tmp_path / str(number))[0])
    assert names[0]["dataset_fingerprint"] == names[1]["dataset_fingerprint"]
    assert names[1]["ledger_total"] > 1.1 * names[0]["ledger_total"]


def test_evaluate_scores_whole_clips_and_views(halfmask, run_of) -> None:
    run, _ = run_of("masked")
    before = json.loads((run / "metrics.json").read_text())["metrics"]
    body = json.loads(halfmask("evaluate", run, "--views", "--json").out)
    assert body["task"] == "action" and body["people"] == 6 and set(body["metrics"]) == set(body["views"])
    assert body["metrics"]["accuracy"] == pytest.approx(before["accuracy"], abs=0.01)


def video(path: Path, frames: int = 20) -> Path:
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*"MJPG"), 10, (80, 64))
    rng = np.random.default_rng(0)
    for _ in range(frames):
        writer.write(cv2.resize(rng.integers(0, 256, (4, 5, 3), dtype=np.uint8), (80, 64)))
    writer.release()
    return path


def test_predict_writes_labels_over_time_and_a_video(halfmask, run_of, tmp_path: Path) -> None:
    run, _ = run_of("masked")
    result = halfmask("predict", run, video(tmp_path / "somebody.avi"), "--out", tmp_path / "out")
    assert result.code == 0, result.err
    found = json.loads((tmp_path / "out/somebody.json").read_text())
    assert found["frames"] == 20 and found["segments"][0]["start"] == 0 and found["segments"][-1]["end"] == pytest.approx(2.0)
    classes = json.loads((run / "metrics.json").read_text())["classes"]
    assert found["classes"] == classes and {one["label"] for one in found["segments"]} <= set(classes)
    drawn = [path for path in (tmp_path / "out").iterdir() if path.suffix in (".mp4", ".avi", ".webm", ".mkv")]
    assert len(drawn) == 1 and cv2.VideoCapture(str(drawn[0])).read()[0]


def test_a_video_that_is_none_is_one_line(halfmask, run_of, tmp_path: Path) -> None:
    (tmp_path / "broken.avi").write_bytes(b"nothing of use")
    result = halfmask("predict", run_of("masked")[0], tmp_path / "broken.avi", "--out", tmp_path / "out")
    assert result.code == 2 and "cannot be read as a video: the file is corrupt, empty or of another format" in result.err
    assert "Traceback" not in result.err


@pytest.mark.parametrize(
    ("method", "changes", "words"),
    [
        ("masked", ("adjacency=add-remove",), "no meaning for method 'masked'"),
        ("masked", ("rehearsal=true",), "no protected part to rehearse with"),
        ("masked", ("view.name=blur", "view.options={}"), "does not divide records in two"),
        ("masked", ("data.masks=none",), "say where masks come from with data.masks"),
        ("masked", ("data.protect=mask",), "no mask"),
        ("masked", ("view.options.edges=soft",), "edges"),
        ("masked", ("data.protect=room",), "part to protect"),
        ("dpsgd", ("data.missing_classes=refuse",), "no private clip shows brush_teeth, drink, reach, which the test asks for: draw more"),
        ("masked", ("data.clips_per_video=2",), "private videos have more clips, up to 3"),
        ("masked", ("data.clips_per_subject=0",), "data.clips_per_subject"),
        ("dpsgd", ("model.weights=embedded",), "no embedded weights for an MViT of size 'tiny'"),
        ("dpsgd", ("data.classes=[juggle]",), "juggle"),
    ],
)
def test_mistakes_are_one_line(halfmask, tmp_path: Path, method: str, changes: tuple[str, ...], words: str) -> None:
    assert words in halfmask(*arguments(method, tmp_path / "run", changes=changes)).error
