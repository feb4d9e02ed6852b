"""Faces through the real commands: from drawn close-ups to certificates, scores, predictions, pages and audits."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import yaml

from halfmask.data.figures.closeups import closeups
from halfmask.metrics.names import printed
from halfmask.models import hyperface
from halfmask.tasks.face import METRICS

pytestmark = pytest.mark.usefixtures("quick_accounting", "tiny_hyperface")
WORLD = ("data.private=12", "data.public=10", "data.public_skip=0", "data.test=6", "data.workers=1")
NETWORK = ("model.size=tiny", "model.weights=null", "subspace.samples=8", "subspace.dim=4")
TINY = ("--even-so", "--epochs", 0.4, "--batch", 8, "--delta", 1e-3, "--threads", 1)


def setting(*assignments: str) -> list[str]:
    return [part for one in assignments for part in ("--set", one)]


@pytest.fixture(scope="module")
def shared_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home of this file's own: the world is drawn once in it."""
    return tmp_path_factory.mktemp("face-home")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Any]]:
    return {"folder": (tmp_path_factory.mktemp("face-runs"), None)}


@pytest.fixture(autouse=True)
def nobody_was_promised_anything(shared_home: Path) -> None:
    """Every test begins without accounts: what runs at several units spend together takes long to compute, and is tested elsewhere."""
    shutil.rmtree(shared_home / "ledgers", ignore_errors=True)


@pytest.fixture
def run_of(halfmask: Callable[..., Any], made: dict[str, tuple[Path, Any]], shared_home: Path) -> Callable[..., tuple[Path, Any]]:
    """Trains once for each method and each change, and hands the run out again afterwards."""

    def train(method: str, *flags: object, changes: tuple[str, ...] = ()) -> tuple[Path, Any]:
        name = "-".join(str(part) for part in (method, *flags, *changes)).replace("/", "")
        if name not in made:
            shutil.rmtree(shared_home / "ledgers", ignore_errors=True)
            out = made["folder"][0] / name
            result = halfmask(
                "train", "face/figures", "--method", method, *TINY, "--out", out, *flags, *setting(*WORLD, *NETWORK, *changes)
            )
            assert result.code == 0, result.err
            made[name] = out, result
        return made[name]

    return train


def certificate(run: Path) -> tuple[dict[str, Any], str]:
    return json.loads((run / "certificate.json").read_text()), (run / "certificate.md").read_text()


@pytest.mark.parametrize("method", ["dpsgd", "projected", "feature-projective", "public-only"])
def test_every_method_trains_and_says_what_is_public(run_of, method: str) -> None:
    run, result = run_of(method)
    assert "detection accuracy" in result.out and "head pose error" in result.out
    body, text = certificate(run)
    assert body["unit"] == "region" and body["method"] == method and body["units"] > 12
    has_view = method in ("feature-projective", "public-only")
    labels = "which regions show a face and where they lie in their photographs, landmarks, visibility, head pose"
    assert (labels in text) == has_view and ("ψ of every private record" in text) == has_view
    said = text.split("## What the words mean")[0]
    assert ("raw images of public people" in said) == has_view and ("S_pub" in said) == ("project" in method)
    spent = body["epsilon"][body["adjacency"]]
    assert spent == 0 if method == "public-only" else 4 < spent <= 5
    scores = json.loads((run / "metrics.json").read_text())
    assert set(scores["metrics"]) == set(METRICS)


def test_what_epsilon_means_at_each_unit(run_of) -> None:
    region, text = certificate(run_of("dpsgd")[0])
    assert "that the promise is to one region: several regions show one face" in text and "--unit subject" in text
    assert re.search(r"ε to one image of up to \d regions", text) and "Take any one region" in text
    # Several regions with coins of their own tell more than one.
    assert region["coarser"]["image"]["epsilon"] > 1.5 * region["epsilon"]["zero-out"]
    for unit, count in (("image", 12), ("subject", None)):
        body, text = certificate(run_of("dpsgd", "--unit", unit, "--batch", 2)[0])
        assert body["unit"] == unit and f"Take any one {unit}" in text and "to one region" not in text
        assert body["units"] == count if count else 2 <= body["units"] < 12
        assert body["units"] < region["units"]


def test_the_attribute_is_absent_unless_asked_for(run_of) -> None:
    from safetensors import safe_open

    def heads(run: Path) -> set[str]:
        with safe_open(run / "model.safetensors", "pt") as file:
            return {name.split(".")[1] for name in file.keys() if name.startswith("heads.")}  # noqa: SIM118

    everything = {"detection", "landmarks", "visibility", "pose", "attribute"}
    assert heads(run_of("dpsgd")[0]) == everything
    silent, result = run_of("dpsgd", changes=("data.attribute=false",))
    assert heads(silent) == everything - {"attribute"} and "attribute accuracy" not in result.out
    assert "attribute_accuracy" not in json.loads((silent / "metrics.json").read_text())["metrics"]


def test_evaluate(halfmask, run_of) -> None:
    run, _ = run_of("feature-projective")
    before = json.loads((run / "metrics.json").read_text())["metrics"]
    body = json.loads(halfmask("evaluate", run, "--views", "--json").out)
    assert body["task"] == "face" and body["people"] >= 12 and set(body["metrics"]) == set(body["views"]) == set(METRICS)
    assert body["metrics"]["detection_accuracy"] == pytest.approx(before["detection_accuracy"], abs=0.01)
    shown = halfmask("evaluate", run).out
    assert "Detection accuracy" in shown or "detection accuracy" in shown
    assert "head pose" in shown.lower() and "landmark" in shown.lower()


def test_predict_finds_faces_on_a_photograph(halfmask, run_of, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (photograph,) = closeups("test", 1, seed=5)
    path = tmp_path / "somebody.png"
    cv2.imwrite(str(path), cv2.cvtColor(photograph.read(), cv2.COLOR_RGB2BGR))
    run, _ = run_of("dpsgd")
    result = halfmask("predict", run, path, "--out", tmp_path / "out")
    assert result.code == 0, result.err
    assert isinstance(json.loads((tmp_path / "out/somebody.json").read_text())["faces"], list)
    # Too little was learnt to be sure of anything; a bias that is sure of everything finds somebody.
    real = hyperface.HyperFace.upper
    monkeypatch.setattr(hyperface.HyperFace, "upper", lambda self, x: (said := real(self, x)) | {"detection": said["detection"] + 9})
    result = halfmask("predict", run, path, "--out", tmp_path / "sure")
    assert result.code == 0 and re.search(r"\d faces?, surest [01]\.\d\d", result.out), result.err
    found = json.loads((tmp_path / "sure/somebody.json").read_text())["faces"]
    assert found and set(found[0]) == {"box", "score", "landmarks", "pose", "attribute"} and found[0]["score"] > 0.9
    height, width = cv2.imread(str(tmp_path / "sure/somebody.png")).shape[:2]
    assert all(f["box"][0] >= 0 and f["box"][0] + f["box"][2] <= width and f["box"][1] + f["box"][3] <= height for f in found)
    left, top, wide, high = (round(side) for side in photograph.faces[0].box)
    boxed = halfmask("predict", run, path, "--out", tmp_path / "boxed", "--box", f"{left},{top},{wide},{high}")
    assert boxed.code == 0, boxed.err
    (face,) = json.loads((tmp_path / "boxed/somebody.json").read_text())["faces"]
    assert face["box"] == [left, top, wide, high]


def test_a_box_outside_the_photograph_is_one_line(halfmask, run_of, tmp_path: Path) -> None:
    cv2.imwrite(str(tmp_path / "a.png"), np.zeros((40, 50, 3), np.uint8))
    result = halfmask("predict", run_of("dpsgd")[0], tmp_path / "a.png", "--out", tmp_path / "out", "--box", "60,5,20,20")
    assert result.code == 2 and "Traceback" not in result.err
    assert "60,5,20,20 is a box outside the image: expected one inside its 50×40 pixels" in result.err


def test_compare_names_every_metric(halfmask, tmp_path: Path) -> None:
    out, flags = tmp_path / "table", ("--methods", "public-only,dpsgd", "--overlays", 2, "--threads", 1)
    changes = setting(*WORLD, *NETWORK, "even_so=true", "epochs=0.4", "batch=8", "delta=0.001")
    result = halfmask("compare", "face/figures", *flags, "--out", out, *changes)
    assert result.code == 0, result.err
    page = (out / "index.html").read_text()
    for name in METRICS:
        assert printed(name) in page, name
    assert "Landmarks (green: visible, red: hidden) and head axes" in page and "Take any one region" in page
    assert page.count("data:image/webp;base64,") >= 2 and cv2.imread(str(out / "overlays.png")) is not None
    body = json.loads((out / "results.json").read_text())
    assert [row["method"] for row in body["summary"]] == ["public-only", "dpsgd"] and set(METRICS) <= set(body["summary"][0])


def test_audits(halfmask, run_of, tmp_path: Path) -> None:
    run = Path(shutil.copytree(run_of("dpsgd")[0], tmp_path / "run"))
    result = halfmask("audit", "mechanism", run, "--out", tmp_path / "audits", "--threads", 1)
    assert result.code == 0, result.out + result.err
    assert "pass" in result.out and "FAIL" not in result.out
    config = yaml.safe_load((run / "config.yaml").read_text())
    assert "people with several photographs" in halfmask("audit", "identity", run).error
    config["data"] |= {"private": 34, "test": 34, "positives": 1, "negatives": 0}
    (run / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    result = halfmask("audit", "identity", run, "--threads", 1)
    assert result.code == 0, result.err
    assert "Members beyond strangers, beyond the public start" in result.out and "not for release" not in result.out
    assert json.loads((run / "audit/identity.json").read_text())["people"] >= 5, "figures are nobody, so it may stand beside the run"


def test_pretrain(halfmask, run_of, tmp_path: Path) -> None:
    out = tmp_path / "start"
    changes = setting("data.public=10", "data.workers=1", "model.size=tiny", "batch=8")
    result = halfmask("pretrain", "face/pretrain", "--epochs", 1, "--threads", 1, "--out", out, *changes)
    assert result.code == 0, result.err
    assert "detection accuracy" in result.out and "public people set aside" in result.out
    run, _ = run_of("dpsgd", changes=(f"model.weights={out / 'model.safetensors'}",))
    assert certificate(run)[0]["unit"] == "region"


# ---- folders of faces ----------------------------------------------------------------------------------------------------


LANDMARKS = np.column_stack([20 + 40 * (np.arange(68) * 7 % 68) / 67, 30 + 50 * np.arange(68) / 67])


def write_frames(folder: Path, photo: Callable[..., None], moved: dict[int, float], shrunk: dict[int, float]) -> Path:
    """Twelve frames of four subjects."""
    columns = ["file", "subject", "gender", "roll_derived", "pitch_derived", "yaw_derived"]
    lines = [",".join([*columns, *(f"{axis}{point}" for point in range(68) for axis in "xy")])]
    for number in range(12):
        photo(folder / "images" / f"f{number}.jpg", seed=number)
        points = LANDMARKS * shrunk.get(number, 1) + moved.get(number, 0)
        lines.append(",".join([f"f{number}.jpg", str(number // 3), "male", "0", "10", "-5", *(f"{v:.1f}" for v in points.ravel())]))
    (folder / "labels.csv").write_text("\n".join(lines))
    return folder


SPLITS = ("data.splits.private=1-2", "data.splits.public=3", "data.splits.test=4")


def train_on(halfmask: Callable[..., Any], folder: Path, out: Path, *changes: str) -> Any:
    settings = setting(*NETWORK, "data.workers=1", "batch=4", *changes)
    return halfmask("train", "face/figures", "--method", "dpsgd", *TINY[:3], *TINY[5:], "--data", folder, "--out", out, *settings)


def test_faces_that_cannot_be_learnt_are_left_out_and_counted(halfmask, photo, tmp_path: Path) -> None:
    folder = write_frames(tmp_path / "frames", photo, moved={1: 4000.0}, shrunk={2: 0.2})
    result = train_on(halfmask, folder, tmp_path / "run", *SPLITS)
    assert result.code == 0, result.err
    assert "a box outside the image" in result.err and "a face smaller than 16 pixels" in result.err
    assert "f1.jpg" not in result.err and "f2.jpg" not in result.err
    body, text = certificate(tmp_path / "run")
    assert body["units"] >= 6 and "figures" not in text.split("| run |")[0].split("| dataset |")[1]


def test_mistakes_are_one_line_and_nothing_is_spent(halfmask, photo, tmp_path: Path, shared_home: Path) -> None:
    def ledgers() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in shared_home.rglob("*.jsonl")}

    before, out = ledgers(), tmp_path / "run"
    folder = write_frames(tmp_path / "frames", photo, {}, {})
    assert "say who is who with data.splits" in train_on(halfmask, folder, out).error
    assert "which has 4" in train_on(halfmask, folder, out, "data.splits.private=1-9").error
    labels = (folder / "labels.csv").read_text()
    header, first, *others = labels.splitlines()
    blank = ",".join([*first.split(",")[:6], *[""] * 136])
    (folder / "labels.csv").write_text("\n".join([header, blank, *others]))
    line = train_on(halfmask, folder, out, *SPLITS).error
    assert "1 of 12 rows cannot be used: 1 × no two landmarks are annotated" in line and "f0.jpg" not in line
    (folder / "labels.csv").write_text("\n".join([header.replace("x7,", "left7,"), first, *others]))
    assert "has no column x7" in train_on(halfmask, folder, out, *SPLITS, "data.format=ytf68").error
    (folder / "labels.csv").write_text(labels)
    (folder / "images/f0.jpg").unlink()
    line = train_on(halfmask, folder, out, *SPLITS).error
    assert "an annotation names an image file that is missing" in line and "data.on_bad=skip" in line and "f0.jpg" not in line
    (tmp_path / "aflw").mkdir()
    (tmp_path / "aflw/aflw.sqlite").write_bytes(b"SQLite format 3\x00" + bytes(range(256)) * 8)
    assert "cannot be read as an SQLite database" in train_on(halfmask, tmp_path / "aflw", out).error
    assert "cannot be read as an SQLite database" in halfmask("data", "inspect", tmp_path / "aflw").error
    (tmp_path / "empty").mkdir()
    assert "in no known format of faces" in train_on(halfmask, tmp_path / "empty", out).error
    assert not out.exists() and ledgers() == before


def test_photographs_on_which_nobody_is(halfmask, photo, tmp_path: Path) -> None:
    """They teach where nobody is; a dataset of nothing else has no face to learn from."""
    folder = tmp_path / "aflw"
    for number in range(4):
        photo(folder / "data/flickr" / f"{number}.jpg", seed=number)
    with sqlite3.connect(folder / "data/aflw.sqlite") as database:
        database.executescript(
            "CREATE TABLE Faces (face_id INTEGER, file_id TEXT); CREATE TABLE FaceImages (file_id TEXT, filepath TEXT);"
            "CREATE TABLE FaceRect (face_id INTEGER, x REAL, y REAL, w REAL, h REAL);"
            "CREATE TABLE FacePose (face_id INTEGER, roll REAL, pitch REAL, yaw REAL);"
            "CREATE TABLE FeatureCoords (face_id INTEGER, feature_id INTEGER, x REAL, y REAL);"
            "CREATE TABLE FaceMetaData (face_id INTEGER, sex TEXT);"
            "INSERT INTO FaceImages VALUES ('0', '0.jpg'), ('1', '1.jpg'), ('2', '2.jpg'), ('3', '3.jpg');"
            "INSERT INTO Faces VALUES (1, '0'); INSERT INTO FaceRect VALUES (1, 15, 20, 50, 60);"
        )
    database.close()
    body = json.loads(halfmask("data", "inspect", folder, "--quick", "--json").out)
    assert body["format"] == "aflw" and body["parts"]["all"]["with_faces"] == 1 and body["parts"]["all"]["photographs"] == 4
    assert body["parts"]["all"]["landmarks"]["faces_without"] == 1
    result = train_on(halfmask, folder, tmp_path / "run", "data.splits.private=1-3", "data.splits.test=4", "data.attribute=false")
    assert result.code == 0, result.err
