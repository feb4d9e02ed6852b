"""Only a finished generator draws, with the certificate that is its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from halfmask.data.figures_pictures import figures_pictures
from halfmask.errors import HalfmaskError
from halfmask.inference.generators import open_generator
from halfmask.training.config import RunConfig
from halfmask.training.outputs import RunFolder

pytestmark = pytest.mark.usefixtures("one_thread")


def test_it_draws_poses_and_appearances(generator_run: Callable[..., Path]) -> None:
    generator = open_generator(generator_run())
    joints = np.array(figures_pictures("public", 2, size=(32, 32)).targets.rows(np.arange(2))["joints"])
    noise = np.random.default_rng(0).standard_normal((2, generator.latent)).astype(np.float32)
    drawn = generator.draw(joints, noise)
    assert drawn.shape == (2, 32, 32, 3) and drawn.dtype == np.uint8 and generator.size == (32, 32)
    assert np.abs(drawn[1:].astype(int) - generator.draw(joints[1:], noise[1:])).max() <= 1
    assert (drawn[0] != generator.draw(joints[:1], noise[1:])[0]).mean() > 0.1
    assert (drawn[0] != generator.draw(joints[1:], noise[:1])[0]).mean() > 0.1
    # As the task draws them elsewhere: red first.
    expected = generator.task.generated(generator.model, torch.from_numpy(joints), noise=torch.from_numpy(noise))
    np.testing.assert_array_equal(drawn.transpose(0, 3, 1, 2), expected)


def test_noise_that_is_told_and_a_seed_agree(generator_run: Callable[..., Path]) -> None:
    generator = open_generator(generator_run())
    joints = torch.zeros(5, 16, 3)
    noise = torch.randn(5, generator.latent, generator=torch.Generator().manual_seed(3))
    told = generator.task.generated(generator.model, joints, noise=noise, size=2)
    seeded = generator.task.generated(generator.model, joints, seed=3, size=5)
    # Batches of other sizes are summed in other orders.
    assert np.abs(told.astype(int) - seeded).max() <= 1


def test_a_run_with_a_certificate_and_one_of_public_people(generator_run: Callable[..., Path]) -> None:
    certified = open_generator(generator_run())
    assert certified.certificate is not None and certified.certificate["run"] == "ab12" and certified.cautions == ()
    public = open_generator(generator_run("public", certified=False))
    assert public.certificate is None and "has no certificate" in public.cautions[0]


def test_a_certificate_without_a_promise_is_said_to_be_one(generator_run: Callable[..., Path]) -> None:
    folder = generator_run()
    body = json.loads((folder / "certificate.json").read_text())
    (folder / "certificate.json").write_text(json.dumps(body | {"epsilon": {"zero-out": "infinity"}}))
    assert "promises nothing" in open_generator(folder).cautions[0]


def test_a_certificate_of_other_weights_is_refused(generator_run: Callable[..., Path]) -> None:
    folder = generator_run()
    body = json.loads((folder / "certificate.json").read_text())
    (folder / "certificate.json").write_text(json.dumps(body | {"weights_sha256": "0" * 64}))
    with pytest.raises(HalfmaskError, match="about other weights"):
        open_generator(folder)


def test_runs_that_are_not_finished_are_refused(generator_run: Callable[..., Path], tmp_path: Path) -> None:
    with pytest.raises(HalfmaskError, match="no run at"):
        open_generator(tmp_path / "nowhere")
    going_on = generator_run("going on")
    # As a run is that goes on after its end: what was certified is taken back first.
    RunFolder(going_on).withdraw()
    with pytest.raises(HalfmaskError, match=r"is unfinished.*--resume"):
        open_generator(going_on)
    stopped = generator_run("stopped")
    RunFolder(stopped).log("end", step=2, interrupted=True)
    with pytest.raises(HalfmaskError, match="is unfinished"):
        open_generator(stopped)
    early = generator_run("early")
    (early / "log.jsonl").write_text('{"event": "start", "noise_multiplier": 1.0}\n')
    with pytest.raises(HalfmaskError, match="is unfinished"):
        open_generator(early)
    (early / "model.safetensors").unlink()
    with pytest.raises(HalfmaskError, match=r"has no model\.safetensors"):
        open_generator(early)
    (going_on / "log.jsonl").write_text("no log")
    with pytest.raises(HalfmaskError, match="cannot be read as a log"):
        open_generator(going_on)


def test_training_that_diverged_draws_nobody(generator_run: Callable[..., Path]) -> None:
    def explode(model: torch.nn.Module) -> None:
        next(model.generator.parameters()).data[0] = float("nan")  # type: ignore[union-attr, operator]

    with pytest.raises(HalfmaskError, match="its training diverged"):
        open_generator(generator_run(model=explode))


def test_another_task_draws_nobody(tiny_config: Callable[..., RunConfig], tmp_path: Path) -> None:
    from halfmask.models.simcc import PoseModel

    config = tiny_config()
    folder = RunFolder.create(tmp_path / "pose", config)
    folder.save_model(PoseModel("nano", 16, (64, 48)))
    with pytest.raises(HalfmaskError, match="a run of the task 'pose', which draws nobody: expected one of the task 'generate'"):
        open_generator(folder.path)
