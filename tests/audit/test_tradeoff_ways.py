"""Ways to hide people: what belongs to one curve, what is free, and that a generator is told nothing but a pose."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from halfmask.audit.recognition import Division
from halfmask.audit.tradeoff import People
from halfmask.audit.tradeoff_ways import PUBLISHED_STRENGTHS, avatars, public_ways, run_ways, sticks
from halfmask.data.skeleton import MPII
from halfmask.errors import HalfmaskError
from halfmask.models.posegan import PoseGAN
from halfmask.views.baselines import BASELINES

pytestmark = pytest.mark.usefixtures("one_thread")
Build = Callable[..., Path]


def standing() -> np.ndarray:
    ys = [60, 48, 36, 36, 48, 60, 36, 18, 14, 6, 36, 28, 18, 18, 28, 36]
    xs = [20, 20, 21, 27, 28, 28, 24, 24, 24, 24, 16, 17, 19, 29, 31, 32]
    return np.stack([xs, ys, np.ones(16)], 1).astype(float)


def people(actions: tuple[str, ...] = ("walk", "sit")) -> People:
    joints = np.stack([standing(), standing() + np.array([4, 0, 0])])
    rng = np.random.default_rng(0)
    images = rng.integers(0, 255, (2, 3, 64, 48), dtype=np.uint8)
    nobody = Division(np.arange(1), np.arange(1, 2), 1, 0)
    return People(images, joints, np.arange(2), np.zeros(2, int), actions, nobody, images, joints, "test", MPII, "figures", "key")


def test_everything_customary_is_there_at_a_scale_that_fits() -> None:
    ways = public_ways(people())
    assert [way.kind for way in ways].count("baseline") == sum(len(strengths) for strengths in BASELINES.values())
    assert ways[0].kind == "raw" and {way.family for way in ways if way.kind == "drawn"} == {"drawn stick figures", "drawn avatars"}
    keys = [way.key for way in ways]
    assert len(set(keys)) == len(keys)
    blur = next(way for way in ways if way.strength == "σ 3.8")
    assert "sigma=1.9" in blur.key, "the strength is one of pictures twice as high"
    assert "sigma=3.8" in next(way for way in public_ways(people(), scale=1.0) if way.strength == "σ 3.8").key
    shown = [(way.family, way.strength) for way in ways if way.kind == "baseline" and way.pictured]
    assert shown == [("blur", "σ 3.8"), ("downsampling", "1/8"), ("superpixels", "800")]
    for way in ways:
        hidden = way.hide(people().images, people().joints, 0)
        assert hidden.shape == (2, 3, 64, 48) and hidden.dtype == np.uint8
        assert (hidden == people().images).all() == (way.kind == "raw") or way.strength in ("2000", "800", "σ 1"), way.key


def test_without_actions_the_published_strengths_alone() -> None:
    ways = public_ways(people(()))
    assert len([way for way in ways if way.kind == "baseline"]) == len(PUBLISHED_STRENGTHS)


@pytest.mark.parametrize("hide", [avatars, sticks(MPII)])
def test_drawn_figures_know_the_pose_and_nothing_else(hide) -> None:
    known = people()
    drawn = hide(known.images, known.joints, 0)
    assert np.array_equal(drawn, hide(255 - known.images, known.joints, 0)), "nothing of the picture"
    assert not np.array_equal(drawn, hide(known.images, known.joints + np.array([0, 3, 0]), 0))
    body = (drawn[0] != drawn[0][:, :1, :1]).any(0)
    assert body[8:60, 14:34].mean() > 0.1 and not body[:, :8].any()
    cut = known.joints.copy()
    cut[0, 6:10] = 0
    assert (hide(known.images, cut, 0)[0] != drawn[0][:, :1, :1]).any(), "somebody cut off is drawn as far as known"


def test_runs_of_one_curve_differ_in_epsilon_and_seed(generate_run: Build, tmp_path: Path) -> None:
    folders = [
        generate_run(tmp_path / "a", epsilon=1, seed=0),
        generate_run(tmp_path / "b", epsilon=1, seed=1),
        generate_run(tmp_path / "c", epsilon=20),
        generate_run(tmp_path / "d", method="non-private"),
        generate_run(tmp_path / "e", method="public-only"),
    ]
    ways, config = run_ways([(None, folder) for folder in folders])
    assert [(way.family, way.strength, way.kind, way.seed) for way in ways] == [
        ("ours", "ε 1", "run", 0),
        ("ours", "ε 1", "run", 1),
        ("ours", "ε 20", "run", 0),
        ("ours", "ε ∞", "run", 0),
        ("public-only", "ε 0", "public", 0),
    ]
    assert config.data.private == 36 and ways[3].epsilon == math.inf and ways[3].facts()["epsilon"] is None
    assert len({way.key for way in ways}) == 2, "weights of one seed are the same here"
    assert sorted(ways[:4], key=lambda way: way.order)[0].strength == "ε ∞", "the weakest first"


def test_runs_with_other_settings_are_other_curves(generate_run: Build, tmp_path: Path) -> None:
    plain, paired = generate_run(tmp_path / "a"), generate_run(tmp_path / "b", "model.clip=pair", "model.bound=weights")
    ways, _ = run_ways([(None, plain), (None, paired)])
    assert [way.family for way in ways] == [
        "ours, model.bound=spectral, model.clip=real",
        "ours, model.bound=weights, model.clip=pair",
    ]
    assert [way.family for way in run_ways([("ours", plain), ("as published", paired)])[0]] == ["ours", "as published"]
    for settings, told in ((("data.seed=5",), "other data settings"), (("data.private=30",), "other data settings")):
        other = generate_run(tmp_path / settings[0], *settings)
        with pytest.raises(HalfmaskError, match=told):
            run_ways([(None, plain), (None, other)])
    with pytest.raises(HalfmaskError, match="no run was given"):
        run_ways([])


def test_the_warm_start_stands_before_the_runs(generate_run: Build, tmp_path: Path) -> None:
    torch.manual_seed(7)
    start = PoseGAN("small", 16, 32, 32)
    save_file(start.state_dict(), tmp_path / "start.safetensors")
    run = generate_run(tmp_path / "a", f"model.weights={tmp_path / 'start.safetensors'}")
    (first, second), _ = run_ways([(None, run)])
    assert (first.family, first.strength, first.kind, first.epsilon) == ("warm start", "ε 0", "start", 0.0)
    joints = standing()[None] * [0.5, 0.5, 1]
    images = np.zeros((1, 3, 32, 32), np.uint8)
    one, other = first.hide(images, joints, 0), second.hide(images, joints, 0)
    assert one.shape == (1, 3, 32, 32) and not np.array_equal(one, other), "other weights than the run ended with"
    assert np.array_equal(one, first.hide(images + 200, joints, 0)), "the generator is not shown the picture"
    assert not np.array_equal(one, first.hide(images, joints, 1)), "somebody else"
