"""A cluster of two workers on one machine, each with a home of its own that is not the home of the sweep.

What the tests do to it is real: a worker is killed, the ledger's actor is killed, tasks are cancelled.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from halfmask.errors import HalfmaskError
from halfmask.privacy.account import account_of
from halfmask.privacy.accounting import SampledGaussian, epsilon
from halfmask.privacy.ledger import Ledger, ledger_names
from halfmask.privacy.verification import verify_certificate
from halfmask.training import sweep_ray
from halfmask.training.sweep import cost_together, read_certificate, run_state
from halfmask.training.sweep_jobs import Board, Ending, carry_out, exit_code
from halfmask.training.sweep_ray import RayCrew

ray = pytest.importorskip("ray")
cluster_utils = pytest.importorskip("ray.cluster_utils")

DELTA = 1e-3


@dataclass(frozen=True)
class Machines:
    address: str
    homes: tuple[Path, Path]
    raylets: tuple[int, ...]

    def workers(self) -> list[int]:
        """Processes of this cluster that are at a run."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                title = (entry / "cmdline").read_bytes()
            except (OSError, ValueError, IndexError):
                continue
            if parent in self.raylets and title.startswith(b"ray::_attempt_as_guest"):
                found.append(int(entry.name))
        return found


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    place = tmp_path_factory.mktemp("machines")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    cluster = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    homes = (place / "first", place / "second")
    nodes = [cluster.add_node(num_cpus=1, env_vars={"HALFMASK_HOME": str(one)}) for one in homes]
    ray.init(address=cluster.address, log_to_driver=False, logging_level="error")
    yield Machines(cluster.address, homes, tuple(node.all_processes["raylet"][0].process.pid for node in nodes))
    ray.shutdown()
    cluster.shutdown()


def test_eight_runs_with_a_worker_killed_on_the_way(machines, quick_sweep, acting, fresh_home, tmp_path) -> None:
    runs = quick_sweep(8)
    board = acting(lambda _: os.kill(machines.workers()[0], signal.SIGKILL))
    outcomes = carry_out(runs, RayCrew(machines.address, tmp_path / "table"), board)
    assert [one.ending for one in outcomes] == [Ending.DONE] * 8 and exit_code(outcomes) == 0
    assert len(board.failed) == 1 and "its worker ended" in board.failed[0]

    # One account, whichever machine a run was on; none of their own homes knows the key, or a ledger.
    (dataset,) = ledger_names()
    assert {read_certificate(run.folder)["dataset_fingerprint"] for run in runs} == {dataset}
    assert {name for run in runs for name in read_certificate(run.folder)["related_datasets"]} == set()
    for home in machines.homes:
        assert (home / "cache").is_dir(), "no run was on that machine"
        assert not (home / "ledgers").exists() and not (home / "fingerprint.key").exists()
    assert (fresh_home / "fingerprint.key").is_file() and not (fresh_home / "cache").exists()

    # What certificates say, composed, is what the ledger says. A killed run is certified for what it paid, not for what it did.
    plans = []
    for run in runs:
        said = read_certificate(run.folder)
        plans.append(SampledGaussian(said["noise_multiplier"], said["sampling_rate"], said["steps"]))
        assert all(check.passed for check in verify_certificate(run.folder / "model.safetensors", run.folder / "certificate.json"))
    ledger = Ledger(dataset)
    assert sum(plan.steps for plan in plans) == sum(spend.steps for spend in ledger.spends()) == 8 * 3
    account = account_of(ledger)
    assert account is not None and len({spend.run for spend in account.spends()}) == 8
    assert cost_together(runs)[1] == pytest.approx(epsilon(plans, DELTA), rel=1e-9)
    assert not (tmp_path / "table" / "runs" / ".sweep").exists()


def test_a_budget_that_ends_in_the_middle(machines, quick_sweep, acting, fresh_home, tmp_path) -> None:
    one = SampledGaussian(3.0, 0.2, 3)
    budget = epsilon([SampledGaussian(3.0, 0.2, 8)], DELTA, "rdp")
    runs = quick_sweep(4, budget=budget)
    outcomes = carry_out(runs, RayCrew(machines.address, tmp_path / "table"), Board())
    endings = [one.ending for one in outcomes]
    assert endings.count(Ending.DONE) == 2 and endings.count(Ending.REFUSED) == 2 and exit_code(outcomes) == 2
    assert all("spent or reserved" in one.words for one in outcomes if one.ending is Ending.REFUSED)
    (dataset,) = ledger_names()
    assert sum(spend.steps for spend in Ledger(dataset).spends()) == 2 * one.steps


def test_ctrl_c_and_the_same_command_again(machines, quick_sweep, acting, fresh_home, tmp_path) -> None:
    def interrupt(number: int) -> None:
        raise KeyboardInterrupt

    runs = quick_sweep(2, epochs=6)
    with pytest.raises(KeyboardInterrupt):
        carry_out(runs[:1], RayCrew(machines.address, tmp_path / "table"), acting(interrupt))
    stopped = read_certificate(runs[0].folder)
    assert 0 < stopped["steps"] < stopped["planned_steps"], "certified for the steps it took"
    assert run_state(runs[0]).value == "continue"
    outcomes = carry_out(runs[:1], RayCrew(machines.address, tmp_path / "table"), Board())
    assert [one.ending for one in outcomes] == [Ending.DONE]
    whole = read_certificate(runs[0].folder)
    assert whole["run"] == stopped["run"] and whole["steps"] == whole["planned_steps"] == 30


def test_a_run_without_its_ledger_stops_before_the_next_coin(machines, quick_sweep, acting, fresh_home, tmp_path) -> None:
    (run,) = quick_sweep(1, epochs=200)
    crew = RayCrew(machines.address, tmp_path / "table")
    with pytest.raises(HalfmaskError, match=r"the ledger's actor is gone.*same command goes on"):
        carry_out([run], crew, acting(lambda _: ray.kill(crew.desk)))
    deadline = time.monotonic() + 120
    while machines.workers() and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not machines.workers(), "the run goes on without its ledger"
    (dataset,) = ledger_names()
    paid = sum(spend.steps for spend in Ledger(dataset).spends())
    assert 0 < paid < 1000 and not (run.folder / "certificate.json").exists()
    logged = [json.loads(line) for line in (run.folder / "log.jsonl").read_text().splitlines()]
    assert max(line.get("step", 0) for line in logged) <= paid


def test_a_machine_that_does_not_see_the_folder_is_refused(tmp_path) -> None:
    (tmp_path / "runs").mkdir()
    with pytest.raises(HalfmaskError, match="share under the same path"):
        sweep_ray._check_machine("somewhere", tmp_path, "sign", sweep_ray.code_digest())
    (tmp_path / "runs" / ".sweep").write_text("of another sweep")
    with pytest.raises(HalfmaskError, match="share under the same path"):
        sweep_ray._check_machine("somewhere", tmp_path, "sign", sweep_ray.code_digest())
    (tmp_path / "runs" / ".sweep").write_text("sign")
    sweep_ray._check_machine("somewhere", tmp_path, "sign", sweep_ray.code_digest())
    with pytest.raises(HalfmaskError, match="other code of Halfmask"):
        sweep_ray._check_machine("somewhere", tmp_path, "sign", "other")


def test_a_clients_connection_is_refused(tmp_path) -> None:
    with pytest.raises(HalfmaskError, match="the ledger must be on a machine of the cluster"), RayCrew("ray://head:10001", tmp_path):
        pass
