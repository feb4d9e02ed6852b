from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from halfmask.cli.predict import predict_one
from halfmask.models.hyperface import HyperFace
from halfmask.models.mvit import MViT
from halfmask.serve.looking import Models, as_url, look, see
from halfmask.training.config import build_config, load_recipe
from halfmask.training.runs import open_run


def pixels(url: str) -> np.ndarray:
    kind, _, body = url.partition(",")
    assert kind == "data:image/png;base64"
    return cv2.cvtColor(cv2.imdecode(np.frombuffer(base64.b64decode(body), np.uint8), cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB)


def test_models_see_what_predict_finds(client: Any, runs: Path, picture: bytes, tmp_path: Path) -> None:
    answers = client.post("/api/look", picture).lines()
    assert [answer["run"] for answer in answers] == ["first", "second"]
    (tmp_path / "photo.png").write_bytes(picture)
    for answer in answers:
        trained = open_run(runs / answer["run"])
        found = predict_one(trained, tmp_path / "photo.png", None, True, tmp_path / "photo.json", tmp_path / "drawn.png")
        assert answer["found"]["joints"] == found["joints"]
        drawn = cv2.cvtColor(cv2.imread(str(tmp_path / "drawn.png")), cv2.COLOR_BGR2RGB)
        assert np.array_equal(pixels(answer["drawing"]), drawn)
    assert answers[0]["found"] != answers[1]["found"]


def test_some_models_are_asked(client: Any, picture: bytes) -> None:
    (answer,) = client.post("/api/look?run=second&run=second", picture).lines()
    assert (answer["run"], answer["method"], answer["epsilon"]) == ("second", "feature-projective", 0.4)


def test_a_run_that_cannot_look_says_why(tmp_path: Path, make_run: Callable[..., Any], generate_run: Callable[..., Path]) -> None:
    good = make_run(tmp_path / "good").path
    broken = make_run(tmp_path / "broken").path
    (broken / "model.safetensors").write_bytes(b"nothing")
    diverged = make_run(tmp_path / "diverged").path
    model = open_run(diverged).model
    with torch.no_grad():
        next(model.parameters()).fill_(float("nan"))
    save_file({name: tensor.contiguous() for name, tensor in model.state_dict().items()}, diverged / "model.safetensors")
    headless = make_run(tmp_path / "headless").path
    save_file({"other": torch.zeros(3)}, headless / "model.safetensors")
    drawing = generate_run(tmp_path / "drawing")
    named = {path.name: path for path in (broken, headless, diverged, drawing, good)}
    answers = {answer["run"]: answer for answer in (piece() for piece in look(Models(), named, np.zeros((60, 40, 3), np.uint8)))}
    assert "error" in answers["broken"] and "error" in answers["headless"] and "diverged" in answers["diverged"]["error"]
    assert "nothing to say of a single picture" in answers["drawing"]["error"]
    assert len(answers["good"]["found"]["joints"]) == 16
    json.dumps(answers, allow_nan=False)


def test_models_are_opened_once_and_again_when_they_change(tmp_path: Path, make_run: Callable[..., Any]) -> None:
    run, models = make_run(tmp_path / "one"), Models()
    first = models.of(run.path)
    assert models.of(run.path) is first
    run.save_weights((run.path / "model.safetensors").read_bytes())
    assert models.of(run.path) is not first


def test_few_models_are_kept(tmp_path: Path, make_run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halfmask.serve.looking._OPEN", 1)
    models = Models()
    one, two = (make_run(tmp_path / name).path for name in ("one", "two"))
    first = models.of(one)
    models.of(two)
    assert models.of(one) is not first


def test_faces_are_seen(tmp_path: Path, tiny_hyperface: None) -> None:
    config = build_config(load_recipe("face/figures"), {"even_so": True}, ["model.size=tiny", "model.weights=null"])
    (tmp_path / "config.yaml").write_text(config.to_yaml())
    torch.manual_seed(0)
    save_file(HyperFace("tiny").state_dict(), tmp_path / "model.safetensors")
    seen = see(open_run(tmp_path), np.random.default_rng(0).integers(0, 256, (60, 60, 3), dtype=np.uint8))
    assert "faces" in seen["found"] and "face" in seen["summary"] and pixels(seen["drawing"]).shape == (60, 60, 3)


def test_a_still_gets_a_label_and_a_caution(tmp_path: Path, tiny_mvit: None) -> None:
    config = build_config(load_recipe("action/figures"), {"even_so": True}, ["model.size=tiny", "model.weights=null"])
    (tmp_path / "config.yaml").write_text(config.to_yaml())
    torch.manual_seed(0)
    save_file(MViT("tiny", 5).state_dict(), tmp_path / "model.safetensors")
    seen = see(open_run(tmp_path), np.zeros((60, 80, 3), np.uint8))
    assert "class" in seen["summary"] and "does not move" in seen["remark"]


def test_drawings_are_no_larger_than_shown() -> None:
    assert pixels(as_url(np.zeros((3000, 1000, 3), np.uint8))).shape == (900, 300, 3)
