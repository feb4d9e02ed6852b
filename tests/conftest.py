"""Fixtures that all tests share: a private home of their own, quick accounting, tiny datasets and configs."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import scipy.io
import torch
from safetensors.torch import save_file

import halfmask.privacy.accounting as accounting
from halfmask.data.clips import ClipRecords, records_of_clips
from halfmask.data.faces import FaceRecords, Layout, face_records
from halfmask.data.figures import JOINT_NAMES
from halfmask.data.figures_records import figures_records
from halfmask.data.pose_records import PoseRecords, pose_records
from halfmask.data.skeleton import COCO
from halfmask.models import hyperface, mvit, posegan
from halfmask.models.posegan import PoseGAN
from halfmask.privacy import guest
from halfmask.privacy.certificate import Certificate
from halfmask.training.config import RunConfig, build_config, load_recipe
from halfmask.training.outputs import RunFolder

TINY_SIZE = (64, 48)
pytest_plugins = ["browser"]


@pytest.fixture(autouse=True, scope="module")
def halfmask_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Ledgers, caches and keys of a file's tests go to a folder that is thrown away, never to the user's nor to another file's."""
    home = tmp_path_factory.mktemp("halfmask-home")
    before = {name: os.environ.get(name) for name in ("HALFMASK_HOME", "HALFMASK_DATA")}
    os.environ["HALFMASK_HOME"] = str(home)
    os.environ.pop("HALFMASK_DATA", None)
    yield home
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@pytest.fixture
def fresh_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home in which nothing was ever spent or cached."""
    home = tmp_path / "home"
    monkeypatch.setenv("HALFMASK_HOME", str(home))
    return home


@contextmanager
def _at_home(home: Path) -> Iterator[None]:
    before, visited = os.environ["HALFMASK_HOME"], guest._visited[:]
    os.environ["HALFMASK_HOME"] = str(home)
    guest._visited.clear()
    try:
        yield
    finally:
        os.environ["HALFMASK_HOME"] = before
        guest._visited[:] = visited


@pytest.fixture
def at_home() -> Callable[[Path], AbstractContextManager[None]]:
    """Be the process of another machine for a moment: with its home, and nobody's guest."""
    return _at_home


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Sums in one order: what byte-for-byte comparisons need."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@cache
def _quick_calibrate(*arguments: Any) -> float:
    return accounting.calibrate(*arguments)


@pytest.fixture
def quick_accounting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real accountants on a coarse grid (still an upper bound), each plan calibrated once per session."""
    real = accounting.PLDAccountant

    def coarse(*, neighboring_relation: Any, value_discretization_interval: float) -> Any:
        return real(
            neighboring_relation=neighboring_relation,
            value_discretization_interval=max(1e-3, value_discretization_interval),
        )

    monkeypatch.setattr(accounting, "PLDAccountant", coarse)
    monkeypatch.setattr("halfmask.training.setup.calibrate", _quick_calibrate)


@pytest.fixture
def tiny_config() -> Callable[..., RunConfig]:
    """Builds the config of a run of a few steps on a few figures."""

    def build(*assignments: str, **flags: Any) -> RunConfig:
        recipe = {
            "method": "dpsgd",
            "strategy": "top",
            "batch": 8,
            "epochs": 0.4,
            "delta": 1e-3,
            "insecure_seed": 1,
            # A few steps on a few people: nothing can come of them, and nothing need.
            "even_so": True,
            "data": {"private": 40, "public": 60, "test": 8},
            "subspace": {"samples": 16, "dim": 8},
            "model": {"weights": None, "input_size": list(TINY_SIZE)},
        }
        return build_config(recipe, flags, list(assignments))

    return build


@pytest.fixture
def tiny_records() -> PoseRecords:
    """Twelve public figures, small."""
    return figures_records("public", 12, size=TINY_SIZE)


@pytest.fixture
def random_records() -> Callable[..., PoseRecords]:
    """Builds records of noise, with the ids one asks for."""

    def build(count: int = 6, image_ids: Any = None, subjects: Any = None, key: str = "random", seed: int = 0) -> PoseRecords:
        rng = np.random.default_rng(seed)
        joints = len(JOINT_NAMES)
        return pose_records(
            images=rng.integers(0, 256, (count, 3, *TINY_SIZE), dtype=np.uint8),
            joints=(rng.random((count, joints, 2)) * 40 + 4).astype(np.float32),
            labelled=np.ones((count, joints), bool),
            head_boxes=np.tile(np.float32([10, 10, 22, 24]), (count, 1)),
            image_ids=np.arange(count) if image_ids is None else np.asarray(image_ids),
            subjects=None if subjects is None else np.asarray(subjects),
            key=key,
        )

    return build


SHARED_DATA = Path(__file__).parents[2] / "shared" / "data"


@pytest.fixture
def shared_data() -> Callable[[str], Path]:
    """Finds real samples beside the repository; tests that want one are skipped where there is none."""

    def find(name: str) -> Path:
        if not (SHARED_DATA / name).is_dir():
            pytest.skip(f"real sample '{name}' is not beside the repository: its licence does not let us ship it")
        return SHARED_DATA / name

    return find


def write_photo(path: Path, height: int = 120, width: int = 90, seed: int = 0) -> None:
    """A picture that no two seeds share, as a JPEG or whatever the name says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    coarse = np.random.default_rng(seed).integers(0, 256, (6, 5, 3), dtype=np.uint8)
    cv2.imwrite(str(path), cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC))


def standing_person(joints: int, left: float = 20, top: float = 20, height: float = 80) -> np.ndarray:
    """J×2 points that no two joints share, in a box half as wide as it is high."""
    steps = np.arange(joints)
    return np.column_stack([left + (steps * 5 % joints) / (joints - 1) * height / 2, top + steps / (joints - 1) * height])


@pytest.fixture
def photo() -> Callable[..., None]:
    return write_photo


@pytest.fixture
def person() -> Callable[..., np.ndarray]:
    return standing_person


@pytest.fixture
def lsp_folder(tmp_path: Path) -> Callable[..., Path]:
    """Builds LSPET (14×3×N) or, with `classic`, LSP (3×14×N)."""

    def build(count: int = 6, classic: bool = False, flags: np.ndarray | None = None, joints: np.ndarray | None = None) -> Path:
        folder = tmp_path / ("lsp" if classic else "lspet")
        digits = 4 if classic else 5
        for number in range(1, count + 1):
            write_photo(folder / "images" / f"im{number:0{digits}d}.jpg", seed=number)
        points = np.stack([standing_person(14, left=20 + i) for i in range(count)]) if joints is None else joints
        seen = (np.zeros if classic else np.ones)((count, 14)) if flags is None else flags
        matrix = np.concatenate([points, seen[..., None]], -1)
        scipy.io.savemat(folder / "joints.mat", {"joints": matrix.transpose(2, 1, 0) if classic else matrix.transpose(1, 2, 0)})
        return folder

    return build


def coco_annotation(number: int, image: int, **changes: Any) -> dict[str, Any]:
    points = np.column_stack([standing_person(17), np.full(17, 2)]).ravel().tolist()
    body = {"id": number, "image_id": image, "category_id": 1, "iscrowd": 0, "num_keypoints": 17, "area": 2000.0}
    return body | {"bbox": [15.0, 15.0, 50.0, 90.0], "keypoints": points} | changes


def coco_body(images: list[tuple[int, str]], annotations: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "images": [{"id": number, "file_name": name, "height": 120, "width": 90} for number, name in images],
        "annotations": annotations,
        "categories": [{"id": 1, "name": "person", "keypoints": list(COCO.names)}],
    }


@pytest.fixture
def coco_folder(tmp_path: Path) -> Callable[..., Path]:
    """Builds COCO: three training images (the first with two people) and two for validation, or with the annotations given."""

    def build(train: list[dict[str, Any]] | None = None, val: list[dict[str, Any]] | None = None) -> Path:
        folder = tmp_path / "coco"
        (folder / "annotations").mkdir(parents=True, exist_ok=True)
        default = {
            "train": [coco_annotation(1, 11), coco_annotation(2, 11), coco_annotation(3, 12), coco_annotation(4, 13)],
            "val": [coco_annotation(5, 21), coco_annotation(6, 22)],
        }
        for split, given, ids in (("train", train, (11, 12, 13)), ("val", val, (21, 22))):
            names = [(number, f"{number:012d}.jpg") for number in ids]
            for number, name in names:
                write_photo(folder / f"{split}2017" / name, seed=number)
            body = coco_body(names, default[split] if given is None else given)
            (folder / "annotations" / f"person_keypoints_{split}2017.json").write_text(json.dumps(body))
        return folder

    return build


@pytest.fixture
def annotation() -> Callable[..., dict[str, Any]]:
    return coco_annotation


@pytest.fixture
def mpii_folder(tmp_path: Path) -> Callable[..., Path]:
    """Builds MPII as JSON: two training images (the first with two people) and two validation people with head boxes."""

    def build(head_boxes: bool = True, **changes: Any) -> Path:
        folder = tmp_path / "mpii"
        points = (standing_person(16) + 1).tolist()
        entry = {"center": [41.0, 61.0], "scale": 0.4, "joints": points, "joints_vis": [1] * 16} | changes
        splits = {"train": ["a.jpg", "a.jpg", "b.jpg"], "valid": ["c.jpg", "d.jpg"]}
        (folder / "annot").mkdir(parents=True, exist_ok=True)
        for split, names in splits.items():
            (folder / "annot" / f"{split}.json").write_text(json.dumps([entry | {"image": name} for name in names]))
            for name in names:
                write_photo(folder / "images" / name, seed=ord(name[0]))
        if head_boxes:
            boxes = np.stack([np.array([[31.0, 21.0], [43.0, 37.0]]), np.array([[11.0, 11.0], [14.0, 15.0]])], -1)
            scipy.io.savemat(folder / "annot" / "mpii_gt_val.mat", {"headboxes_src": boxes})
        return folder

    return build


@pytest.fixture
def generator_run(tmp_path: Path) -> Callable[..., Path]:
    """Builds the folder of a finished run of the task `generate`, of an untrained generator of 32×32 pixels, with a certificate."""

    def build(name: str = "drawn", *settings: str, certified: bool = True, model: Callable[[PoseGAN], None] = lambda one: None) -> Path:
        small = ["data.height=32", "data.width=32", "model.weights=null"]
        config = build_config(load_recipe("generate/critic"), {"even_so": True}, [*small, *settings])
        folder = RunFolder.create(tmp_path / name, config)
        torch.manual_seed(0)
        network = PoseGAN("small", 16, *config.data.size)
        # An untrained one draws grey, whomever: this one draws people in colours, and not so bright that two of them are the same white.
        torch.nn.init.normal_(network.generator.decoder.out.weight, std=0.03)
        model(network)
        weights = folder.packed(network)
        if certified:
            folder.log("start", steps=3, noise_multiplier=1.0)
            folder.save_certificate(_certificate(hashlib.sha256(weights).hexdigest()))
            folder.log("end", step=3, interrupted=False)
        folder.save_weights(weights)
        return folder.path

    return build


def _certificate(weights: str) -> Certificate:
    return Certificate(
        method="dpsgd",
        unit="image",
        units=100,
        adjacency="zero-out",
        epsilon={"zero-out": 0.9, "replace-one": 1.7},
        delta=1e-5,
        accountant="pld",
        noise_multiplier=1.0,
        sampling_rate=0.1,
        steps=3,
        planned_steps=3,
        clip_norm=1.0,
        expected_batch=10.0,
        public_assumptions=["poses"],
        noise_source="aes",
        ledger_total=0.9,
        dataset_fingerprint="f" * 32,
        dataset="figures",
        run="ab12",
        run_name="drawn",
        weights_sha256=weights,
    )


@pytest.fixture
def tiny_hyperface(monkeypatch: pytest.MonkeyPatch) -> None:
    """A face network of the same build that is quick on one core."""
    monkeypatch.setitem(hyperface.SHAPES, "tiny", hyperface.Shape(32, (4, 6, 8, 8, 8), (5, 2, 2), 3, (2, 2), 8, 6, 2, 16, 8))


@pytest.fixture
def random_faces() -> Callable[..., FaceRecords]:
    """Builds regions of noise: three of a photograph, two of which show its face; two photographs of each subject."""

    def build(photographs: int = 4, landmarks: int = 5, seed: int = 0, attribute: str = "glasses") -> FaceRecords:
        rng = np.random.default_rng(seed)
        count = 3 * photographs
        face = (np.arange(count) % 3 < 2).astype(np.float32)
        visible = (rng.random((count, landmarks)) < 0.7).astype(np.float32) * face[:, None]
        boxes = np.tile(np.float32([10, 12, 40, 40]), (count, 1))
        return face_records(
            images=rng.integers(0, 256, (count, 3, 32, 32), dtype=np.uint8),
            targets={
                "face": face,
                "landmarks": (rng.random((count, landmarks, 2)) - 0.5) * visible[..., None],
                "visible": visible,
                "pose": (rng.random((count, 3)) - 0.5) * face[:, None],
                "posed": face,
                "attribute": (rng.random(count) < 0.5) * face,
                "attributed": face,
            },
            truth={
                "boxes": boxes,
                "face_boxes": np.where(face[:, None] > 0, boxes + np.float32([2, 2, -4, -4]), np.nan),
                "overlaps": np.where(face > 0, 0.8, 0.1).astype(np.float32),
            },
            image_ids=np.arange(count) // 3,
            subjects=np.arange(count) // 6,
            key=f"random faces/{photographs}/{landmarks}/{seed}",
            layout=Layout("five", (1, 0, 2, 4, 3) if landmarks == 5 else tuple(range(landmarks))),
            attribute=attribute,
        )

    return build


@pytest.fixture
def tiny_mvit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A network for video of the same build that is quick on one core."""
    monkeypatch.setitem(mvit.SHAPES, "tiny", mvit.MViTShape(4, 32, (8, 16), (1, 2), (1, 2), 2))


@pytest.fixture
def tiny_posegan(monkeypatch: pytest.MonkeyPatch) -> None:
    """A generator and a critic of the same build that are quick on one core."""
    monkeypatch.setitem(posegan.SHAPES, "tiny", posegan.Shape(8, 16, 8, (4, 6, 6, 8, 8), True, (4, 6, 8, 8)))


@pytest.fixture
def random_clips() -> Callable[..., ClipRecords]:
    """Builds clips of noise with a block of protected pixels in each: two clips of a video, two videos of a subject."""

    def build(count: int = 8, frames: int = 4, side: int = 32, seed: int = 0, classes: int = 3, key: str | None = None) -> ClipRecords:
        rng = np.random.default_rng(seed)
        hidden = np.zeros((count, frames, side, side), bool)
        for row in range(count):
            hidden[row, :, 6 + row % 3 : 24, 4 + row % 5 :] = True
        return records_of_clips(
            clips=rng.integers(0, 256, (count, frames, 3, side, side), dtype=np.uint8),
            labels=np.arange(count) % classes,
            hidden=hidden,
            videos=np.arange(count) // 2,
            subjects=np.arange(count) // 4,
            key=key or f"random clips/{count}/{frames}/{side}/{seed}",
            classes=tuple(f"action {number}" for number in range(classes)),
            masks="a block that a test has drawn",
            protect="background",
        )

    return build


@pytest.fixture
def generate_run() -> Callable[..., Path]:
    """The folder of a run of the task `generate` as it would be left, with weights that nobody trained."""

    def build(folder: Path, *assignments: str, seed: int = 0, **flags: Any) -> Path:
        small = ("data.private=36", "data.public=8", "data.test=10", "data.per_subject=6", "data.height=32", "data.width=32")
        config = build_config(
            load_recipe("generate/critic"), {"seed": seed, "even_so": True, **flags}, [*small, "model.weights=null", *assignments]
        )
        torch.manual_seed(seed)
        folder.mkdir(parents=True)
        (folder / "config.yaml").write_text(config.to_yaml())
        save_file(PoseGAN("small", 16, *config.data.size).state_dict(), folder / "model.safetensors")
        return folder

    return build
