"""Several processes against mistakes, refusals, deaths and the curious."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file
from torch import nn

from halfmask.privacy.ledger import Ledger
from halfmask.privacy.verification import verify_certificate
from halfmask.training.outputs import RunFolder

OPTIMISER = {"name": "sgd", "learning_rate": 1.0, "momentum": 0.0, "schedule": "constant"}


@pytest.fixture
def own(ranks: Any, tmp_path: Path) -> Callable[..., Any]:
    """A run of one's own model on as many processes as one likes."""

    def run(world: int, name: str = "run", fault: str = "", **changes: Any) -> Any:
        job = {"do": "own", "name": name, "out": str(tmp_path / name), "fault": fault, **changes}
        return ranks.run(world, job, environment={"HALFMASK_PATIENCE": "20"})

    return run


# ---- planted faults ------------------------------------------------------------------------------------------------------


def moved(folder: Path) -> list[torch.Tensor]:
    return list(load_file(folder / "model.safetensors").values())


def as_alone(one: Any, several: Any, tmp_path: Path) -> bool:
    """Whether several processes drew the coins and the noise of one, and came to its weights."""
    alone, others = one.seen("alone")[0], several.seen("run")
    same = all(each["coins"] == alone["coins"] for each in others) and others[0]["noise"] == alone["noise"]
    pairs = zip(moved(tmp_path / "alone"), moved(tmp_path / "run"), strict=True)
    return same and all(float((mine - theirs).abs().max()) <= 1e-5 * float(mine.abs().max()) for mine, theirs in pairs)


@pytest.mark.parametrize(
    "fault",
    [
        *("", "noise_on_every_rank", "noise_on_none", "unit_on_two_ranks_another_on_none"),
        *("divided_by_the_local_batch", "divided_by_the_realised_batch"),
    ],
)
def test_a_fault_in_a_step_shows_beside_one_process(fault: str, own: Callable[..., Any], tmp_path: Path) -> None:
    one, several = own(1, "alone"), own(2, fault=fault)
    assert one.codes == [0] and several.codes == [0, 0], several.said()
    assert as_alone(one, several, tmp_path) == (fault == "")


@pytest.mark.parametrize(
    "fault, right", [("", True), ("noise_on_every_rank", False), ("noise_on_none", False), ("divided_by_the_local_batch", False)]
)
def test_noise_has_the_variance_that_was_accounted_for(fault: str, right: bool, own: Callable[..., Any], tmp_path: Path) -> None:
    """A loss without a slope, and noise from the secure source: what the weights moved by is noise alone."""
    several = own(2, fault=fault, loss="nothing", wide=2000, epochs=0.25, insecure_seed=None, optimiser=OPTIMISER)
    assert several.codes == [0, 0], several.said()
    torch.manual_seed(0)
    start = nn.Linear(80, 2000)
    noise = (load_file(tmp_path / "run" / "model.safetensors")["weight"] - start.weight.detach()).double() * 5
    # σ = C = 1, B̄ = 5; of 160,000 numbers, within six standard deviations.
    assert (abs(float(noise.var()) - 1) < 6 * (2 / noise.numel()) ** 0.5) == right


@pytest.mark.parametrize("fault", ["unit_on_two_ranks", "coins_per_rank"])
def test_processes_that_disagree_on_who_is_in_a_step_do_not_take_it(fault: str, own: Callable[..., Any], tmp_path: Path) -> None:
    several = own(2, fault=fault)
    assert several.codes == [2, 2]
    assert all("do not agree on who is in a step" in each["refused"] for each in several.seen("run"))
    assert RunFolder(tmp_path / "run").load_checkpoint()["step"] == 0


@pytest.mark.parametrize(
    "fault, right", [("slow_payments", True), ("payment_after_the_coins", False), ("nobody_waits_for_the_payment", False)]
)
def test_nobody_tosses_a_coin_before_it_is_paid_for(fault: str, right: bool, own: Callable[..., Any]) -> None:
    several = own(3, fault=fault)
    seen = several.seen("run")
    paid = seen[0]["paid at"]
    assert len(paid) == 3 and not any(each["paid at"] for each in seen[1:])
    assert all(min(each["drew at"][step] for each in seen) > paid[step] for step in range(3)) == right


@pytest.mark.parametrize(
    "fault, words",
    [
        ("weights_drift", "the weights of process 1 differ"),
        ("follower_asks_the_ledger", "the ledger is held by the first process"),
        ("follower_draws_noise", "the noise is held by the first process"),
    ],
)
def test_a_process_that_goes_its_own_way_stops_the_run(fault: str, words: str, own: Callable[..., Any]) -> None:
    several = own(2, fault=fault)
    assert several.codes == [2, 2], several.said()
    assert all(words in each["refused"] for each in several.seen("run"))


@pytest.mark.parametrize("change", [{"others": True}, {"patients": 21}], ids=["other pictures under the same names", "one more"])
def test_processes_with_other_people_are_refused(change: dict[str, Any], own: Callable[..., Any], tmp_path: Path) -> None:
    """Root's account pays for root's people: others' would be trained on for nothing."""
    several = own(2, on={"1": change})
    assert several.codes == [2, 2], several.said()
    assert all("the private people of process 1 differ" in each["refused"] for each in several.seen("run"))
    assert not (tmp_path / "run").exists()


# ---- what crosses, and what is written -----------------------------------------------------------------------------------


@pytest.mark.parametrize("fault, right", [("", True), ("everybody_holds_the_sum", False)])
def test_nobody_but_root_holds_the_sum(fault: str, right: bool, own: Callable[..., Any]) -> None:
    several = own(3, fault=fault, keep=True)
    assert several.codes == [0, 0, 0], several.said()
    sums = several.kept("run", 0)["sums"]
    assert len(sums) == 3 * 3, "of three steps the weights, the biases, and both"
    for rank in (1, 2):
        seen, kept = several.seen("run")[rank], several.kept("run", rank)
        # Of exchanges in which several add up, or hear of each other's parts, there is none for a follower.
        assert not any(seen["gathered here"]) and seen["reduced"] == []
        received = [tensor.double().flatten() for tensor in [*kept["broadcast"], *kept["sums"]] if tensor.is_floating_point()]
        alike = [_alike(one, total) for one in received for total in sums if one.numel() == total.numel() > 100]
        assert alike and any(alike) != right


def _alike(one: torch.Tensor, total: torch.Tensor) -> bool:
    """Whether a tensor is another one or a multiple of it. Noise of σ = 1 on so many numbers leaves no such likeness."""
    total = total.double()
    return float((one @ total).abs() / (one.norm() * total.norm()).clamp(min=1e-12)) > 0.95


@pytest.mark.parametrize("fault, right", [("", True), ("follower_writes", False)])
def test_root_alone_writes(fault: str, right: bool, ranks: Any, tmp_path: Path) -> None:
    """Each process with a home of its own, and another idea of where the run goes."""
    homes = [tmp_path / f"home{rank}" for rank in range(2)]
    job = {"do": "own", "name": "run", "out": str(tmp_path / "run"), "fault": fault, "on": {"1": {"out": str(tmp_path / "elsewhere")}}}
    several = ranks.run(2, job, environments=[{"HALFMASK_HOME": str(home)} for home in homes])
    assert several.codes == [0, 0], several.said()
    assert [len(list(home.glob("ledgers/*.jsonl"))) for home in homes] == [1, 0] and not (tmp_path / "elsewhere").exists()
    root, other = (each["written"] for each in several.seen("run"))
    assert any(str(tmp_path / "run") in path for path in root)
    assert any(str(tmp_path / "run") in path or "ledgers/" in path for path in other) != right


# ---- refusals ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    body = {
        "method": "dpsgd",
        "strategy": "top",
        "batch": 5,
        "epochs": 0.5,
        "epsilon": 100.0,
        "delta": 1e-3,
        "noise_multiplier": 1.0,
        "accountant": "rdp",
        "even_so": True,
        "data": {"private": 20, "public": 16, "test": 2},
        "model": {"weights": None, "size": "nano", "input_size": [32, 32]},
    }
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(body))
    return path


def command(ranks: Any, *arguments: str, world: int = 2, on: Any = None) -> Any:
    return ranks.run(world, {"do": "command", "name": "run", "arguments": list(arguments), "on": on or {}})


def test_a_refusal_is_said_once_and_ends_all(recipe: Path, ranks: Any, tmp_path: Path) -> None:
    train, out = ("train", str(recipe), "--out"), str(tmp_path / "run")
    nowhere = [*train, out, "--set", "data.name=nowhere"]
    dear = command(ranks, *train, out, "--budget", "0.01")
    bad = command(ranks, *train, out, on={"1": {"arguments": nowhere}})
    other = command(ranks, *train, out, on={"1": {"arguments": [*train, out, "--set", "data.private=21"]}})
    assert not (tmp_path / "run").exists(), "nothing was begun"
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text("")
    there = command(ranks, *train, out)
    for refused, words in (
        (dear, "budget"),
        (bad, "process 1 of 2: "),
        (other, "the private people of process 1 differ"),
        (there, "already holds a run"),
    ):
        assert refused.codes == [2, 2], refused.said()
        errors = [line for line in refused.said().splitlines() if line.startswith("error: ")]
        assert len(errors) == 1 and words in errors[0] and "Traceback" not in refused.said(), refused.said()


def test_other_commands_are_for_one_process(ranks: Any, tmp_path: Path) -> None:
    refused = command(ranks, "pretrain", "pose/pretrain", "--out", str(tmp_path / "weights"))
    assert refused.codes == [2, 2] and "done by one process" in refused.said() and not (tmp_path / "weights").exists()


def test_several_machines_need_a_network_that_is_said_to_be_closed(own: Callable[..., Any], ranks: Any, tmp_path: Path) -> None:
    refused = own(2, fault="of_other_machines")
    assert refused.codes == [2, 2] and all("--encrypted-network" in each["refused"] for each in refused.seen("run"))
    job = {"do": "own", "name": "run", "out": str(tmp_path / "run"), "fault": "of_other_machines"}
    one_says = ranks.run(2, job, environments=[{"HALFMASK_ENCRYPTED_NETWORK": "1"}, {}])
    assert one_says.codes == [2, 2] and not (tmp_path / "run").exists()
    several = ranks.run(2, job, environment={"HALFMASK_ENCRYPTED_NETWORK": "1"})
    assert several.codes == [0, 0], several.said()
    said = json.loads((tmp_path / "run" / "certificate.json").read_text())["public_assumptions"]
    assert any("the network between 2 machines" in line and "encrypted and closed to others" in line for line in said)


# ---- deaths --------------------------------------------------------------------------------------------------------------


def check_nothing_is_forgotten(folder: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The chain is whole, and the ledger was paid for whatever any file knows of."""
    monkeypatch.setenv("HALFMASK_HOME", str(home))
    state = RunFolder(folder).load_checkpoint()
    ledgers = [Ledger(path.stem) for path in (home / "ledgers").glob("*.jsonl")]
    for ledger in ledgers:
        ledger.verify()
    paid = sum(spend.steps for ledger in ledgers for spend in ledger.spends() if spend.run == state["run"])
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    assert paid >= max([state["step"], *(line.get("step", 0) for line in lines)])
    if (folder / "certificate.json").exists():
        checks = verify_certificate(folder / "model.safetensors", folder / "certificate.json")
        assert [check for check in checks if not check.passed] == []
        assert json.loads((folder / "certificate.json").read_text())["steps"] == paid


DEATHS = {"early killed": 2, "killed": 3, "root killed": 2, "stopped": 2, "root stopped": 3, "stuck": 3, "root stuck": 2}


def test_a_process_that_dies_or_hangs_ends_all_and_the_run_goes_on(ranks: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = {"do": "own", "name": "run", "epochs": 2.0}
    patience, home = {"HALFMASK_PATIENCE": "3"}, ranks.home
    plans, started, begun = {}, {}, time.monotonic()
    # All at once: most of the time somebody waits.
    for seed, (death, world) in enumerate(DEATHS.items()):
        # Of other coins and noise each: equal weights would be taken for the same run's.
        plans[death] = plan | {"out": str(tmp_path / death), "insecure_seed": 10 + seed}
        started[death] = ranks.start(world, plans[death] | {"fault": death}, environment=patience)
    for death, several in started.items():
        whose = 0 if death.startswith("root") else 1
        codes = several.wait(45, besides=None if death.endswith("killed") else whose)
        left = [code for rank, code in enumerate(codes) if rank != whose]
        assert left == [2] * len(left), f"{death}: {codes} {several.said()}"
        assert codes[whose] == (-signal.SIGKILL if death.endswith("killed") else None), (death, codes)
        check_nothing_is_forgotten(tmp_path / death, home, monkeypatch)
        assert RunFolder(tmp_path / death).load_checkpoint()["step"] < 8
        survivors = [each for rank, each in enumerate(_left(several)) if rank != whose]
        assert all("go on with --resume" in each["refused"] for each in survivors), death
    assert time.monotonic() - begun < 90
    for number, death in enumerate(DEATHS):
        # On other numbers of processes than it was begun with.
        going_on = ranks.run((1, 3)[number % 2], plans[death] | {"resume": True}, environment=patience)
        assert set(going_on.codes) == {0}, f"{death}: {going_on.said()}"
        check_nothing_is_forgotten(tmp_path / death, home, monkeypatch)
        last = json.loads((tmp_path / death / "log.jsonl").read_text().splitlines()[-1])
        assert last["event"] == "end" and not last["interrupted"]
        # Steps that were paid for and lost are not paid for again.
        assert json.loads((tmp_path / death / "certificate.json").read_text())["steps"] == 8


def _left(several: Any) -> list[dict[str, Any]]:
    paths = [several.folder / f"run.{rank}.json" for rank in range(len(several.pids))]
    return [json.loads(path.read_text()) if path.exists() else {"refused": ""} for path in paths]


def wait_for_a_checkpoint(folder: Path, steps: int = 2, process: subprocess.Popen[str] | None = None) -> None:
    until = time.monotonic() + 120
    while not (folder / "checkpoint" / "state.pt").exists() or RunFolder(folder).load_checkpoint()["step"] < steps:
        assert process is None or process.poll() is None, process.communicate()[0]
        assert time.monotonic() < until, "the run does not begin"
        time.sleep(0.05)


def test_a_run_that_is_interrupted_is_certified_and_goes_on(ranks: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = {"do": "own", "name": "run", "out": str(tmp_path / "run"), "epochs": 10.0, "insecure_seed": 20}
    several = ranks.start(3, plan | {"fault": "slow_steps"}, environment={"HALFMASK_PATIENCE": "10"})
    wait_for_a_checkpoint(tmp_path / "run")
    for pid in several.pids:
        os.kill(pid, signal.SIGINT)
    assert several.wait(30) == [130, 130, 130], several.said()
    assert (tmp_path / "run" / "certificate.json").exists()
    check_nothing_is_forgotten(tmp_path / "run", ranks.home, monkeypatch)
    assert ranks.run(2, plan | {"resume": True}).codes == [0, 0]
    check_nothing_is_forgotten(tmp_path / "run", ranks.home, monkeypatch)


@pytest.mark.parametrize("world", [1, 2])
def test_a_run_that_ends_before_its_first_step_has_a_true_certificate(
    world: int, ranks: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In a home of its own: others that came no further have released the same weights.
    home, out = tmp_path / "home", tmp_path / "run"
    job = {"do": "own", "name": "run", "out": str(out), "fault": "interrupted_early"}
    assert ranks.run(world, job, environment={"HALFMASK_HOME": str(home)}).codes == [130] * world
    check_nothing_is_forgotten(out, home, monkeypatch)
    assert json.loads((out / "certificate.json").read_text())["steps"] == 0


def test_under_torchrun_itself(recipe: Path, ranks: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command as users give it, ended by the launcher and taken up again."""
    out = tmp_path / "run"
    words = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone", "-m", "halfmask", "train", str(recipe)]
    words += ["--out", str(out), "--set", "epochs=6", "--set", "accountant=pld"]
    variables = os.environ | {"OMP_NUM_THREADS": "1", "HALFMASK_HOME": str(ranks.home)}
    first = subprocess.Popen(words, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        wait_for_a_checkpoint(out, 4, first)
    finally:
        first.terminate()
    said, _ = first.communicate(timeout=60)
    assert (out / "certificate.json").exists(), said
    check_nothing_is_forgotten(out, ranks.home, monkeypatch)
    done = subprocess.run([*words, "--resume"], env=variables, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    check_nothing_is_forgotten(out, ranks.home, monkeypatch)
    assert done.stdout.count("certificate") >= 1 and json.loads((out / "log.jsonl").read_text().splitlines()[-1])["event"] == "end"
