"""One run on one, two and three processes: the same coins, the same noise, the same weights, the same promise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from halfmask.errors import HalfmaskError
from halfmask.training.distributed import Group, Joining, device_here, elsewhere, group, is_root, launched, refuse_several

# Every method, and whatever a run asks of public people on its way; every task. Two or three steps each.
POSE = {
    "dpsgd": ["batch=9"],
    "projected": ["method=projected", "subspace.dim=0", "data.public=24"],
    "sgd in coordinates": ["method=projected", "private.optimiser=sgd"],
    "adam in coordinates": ["method=projected", "subspace.project_first=true", "private.optimiser=adam", "subspace.refresh=1"],
    "layers, whitened": [
        *("method=projected", "subspace.kind=layers", "subspace.whiten=true", "subspace.project_first=true", "private.optimiser=sgd"),
    ],
    "feature": ["method=feature", "public.first=2", "public.steps=2", "public.raw_share=0.5", "augment.times=2"],
    "feature-projective": ["method=feature-projective", "subspace.views=4", "public.batch=2"],
    "follow, calibrate": ["method=feature", "private.follow=0.5", "private.calibrate=true", "private.residual=true"],
    "shared batch": ["method=feature", "public.shared_batch=true"],
    "non-private": ["method=non-private"],
    "public-only": ["method=public-only", "public.first=1"],
    "empty batches": ["batch=1", "epochs=0.15"],
    "subjects": ["unit=subject", "batch=2"],
}
OTHERS = {
    "face": ("face", []),
    "face feature": ("face", ["method=feature"]),
    "masked": ("action", []),
    "action dpsgd": ("action", ["method=dpsgd"]),
    "critic": ("generate", []),
    "critic on pairs": ("generate", ["model.clip=pair", "model.bound=penalty", "model.penalty=10"]),
    "critic of means": ("generate", ["model.critic=means", "batch=12", "epochs=1", "model.generator_steps=3"]),
}
OWN: dict[str, dict[str, Any]] = {
    "own": {},
    "own projected": {"public": True},
    "own feature": {"view": True},
    "own, fewer units than processes": {"patients": 2, "batch": 1, "epochs": 2},
}
SCENARIOS = [*POSE, *OTHERS, *OWN]
# The run's own name, and what goes by the last digits of its weights.
ITS_OWN = ("run", "date", "code_commit", "weights_sha256", "ledger_hash")
# Rounding in single precision, where sums were taken in another order, as a share of the largest weight of a tensor. Some tensors begin at
# zero, and are all update.
ROUNDING = 1e-4


def jobs(out: Path) -> list[dict[str, Any]]:
    trained = {name: ("pose", settings) for name, settings in POSE.items()} | OTHERS
    made: list[dict[str, Any]] = [
        {"do": "train", "name": name, "out": str(out / name), "task": task, "settings": settings}
        for name, (task, settings) in trained.items()
    ]
    return made + [{"do": "own", "name": name, "out": str(out / name), **changes} for name, changes in OWN.items()]


@pytest.fixture(scope="module")
def runs(ranks: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[int, tuple[Path, Any]]:
    """Every scenario on one, two and three processes, in homes where nothing was spent before."""
    warm, tasks = tmp_path_factory.mktemp("warm"), ("pose", "face", "action", "generate")
    # Draws the people, for all of them.
    assert ranks.run(1, *({"do": "train", "name": task, "out": str(warm / task), "task": task} for task in tasks), seconds=300).codes == [0]
    found = {}
    for world in (1, 2, 3):
        out, home = tmp_path_factory.mktemp(f"on{world}"), ranks.home_like(f"home{world}")
        done = ranks.run(world, *jobs(out), seconds=600, environment={"HALFMASK_HOME": str(home)})
        assert done.codes == [0] * world, done.said()
        found[world] = out, done
    return found


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_run_is_the_same_on_any_number_of_processes(name: str, world: int, runs: dict[int, tuple[Path, Any]]) -> None:
    (alone, one), (shared, several) = runs[1], runs[world]
    assert steps_differ(one.seen(name)[0], several.seen(name), alone / name, shared / name) == []
    assert promises_differ(alone / name, shared / name) == []


def test_the_scenarios_show_something(runs: dict[int, tuple[Path, Any]]) -> None:
    """Batches that divide and such that do not, empty ones, and shares of nobody."""
    sizes = {name: [len(coins) for coins in runs[3][1].seen(name)[2]["coins"]] for name in SCENARIOS}
    assert 0 in sizes["empty batches"] and 0 in sizes["own, fewer units than processes"] and 1 in sizes["masked"]
    assert max(max(each, default=0) for each in sizes.values()) > 6
    start, end = (load_file(runs[1][0] / name / "model.safetensors") for name in ("dpsgd", "feature"))
    assert any(not torch.equal(start[name], end[name]) for name in start)


def steps_differ(one: dict[str, Any], several: list[dict[str, Any]], alone: Path, shared: Path) -> list[str]:
    """How the steps of a run on several processes were not those of one."""
    found = ["coins"] if any(each["coins"] != one["coins"] for each in several) else []
    found += ["noise"] if several[0]["noise"] != one["noise"] else []
    found += ["noise of others"] if any(each["noise"] for each in several[1:]) else []
    expected, weights = (load_file(folder / "model.safetensors") for folder in (alone, shared))
    far = [name for name in expected if float((weights[name] - expected[name]).abs().max()) > ROUNDING * float(expected[name].abs().max())]
    return found + far


def promises_differ(alone: Path, shared: Path) -> list[str]:
    """How what a run on several processes promises, and what it leaves, is not what one does."""
    one, several = (json.loads((folder / "certificate.json").read_text()) for folder in (alone, shared))
    found = [name for name in one.keys() | several.keys() if one.get(name) != several.get(name) and name not in ITS_OWN]
    files, others = ({path.relative_to(folder).as_posix() for path in folder.rglob("*")} for folder in (alone, shared))
    found += [f"file {name}" for name in files ^ others]
    lines, others_lines = ([json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()] for folder in (alone, shared))
    return found + (["log"] if [sorted(line) for line in lines] != [sorted(line) for line in others_lines] else [])


# ---- a process by itself -------------------------------------------------------------------------------------------------


def test_for_one_process_a_group_changes_nothing() -> None:
    alone, rows = Group(), torch.arange(5)
    assert alone.root and alone.share(rows) is rows and alone.from_root(lambda: rows) is rows and alone.at_root(lambda: 3, "it") == 3
    assert alone.mean(rows, 1.0, 5) == (rows, 1.0)
    with alone.together(), alone.undisturbed():
        alone.barrier()
        alone.agree("anything", lambda: pytest.fail("nobody to compare with"))
    assert "network" not in alone.wire


def test_only_a_launcher_makes_several(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    assert not launched() and is_root() and group().size == 1 and device_here("cpu") == "cpu"
    refuse_several("anything")
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.setenv("RANK", "0")
    assert not launched() and group().size == 1
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    assert launched() and not is_root()
    with pytest.raises(HalfmaskError, match="done by one process, and torchrun started 2"):
        refuse_several("anything")


@pytest.mark.parametrize(
    "name, value", [("HALFMASK_PATIENCE", "soon"), ("HALFMASK_PATIENCE", "0"), ("HALFMASK_ENCRYPTED_NETWORK", "perhaps")]
)
def test_variables_that_say_nothing_are_refused(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(HalfmaskError, match=name):
        Joining.from_environment()


def test_variables_say_what_flags_say(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Joining.from_environment() == Joining()
    monkeypatch.setenv("HALFMASK_PATIENCE", "7.5")
    monkeypatch.setenv("HALFMASK_ENCRYPTED_NETWORK", "yes")
    assert Joining.from_environment() == Joining(7.5, encrypted=True)


def test_what_is_elsewhere_refuses_to_be_used() -> None:
    with pytest.raises(HalfmaskError, match="the ledger is held by the first process of a run alone, and another one asked for its 'pay'"):
        elsewhere("the ledger").pay(1)
