from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from halfmask.data.prints import named_prints
from halfmask.errors import HalfmaskError
from halfmask.privacy.account import Account
from halfmask.privacy.accounting import SampledGaussian, epsilon
from halfmask.privacy.spends import Spend
from halfmask.training.sweep import (
    Combination,
    PlannedRun,
    RunState,
    clear,
    collect,
    cost_together,
    expand,
    is_done,
    optimiser_line,
    plan_sweep,
    remark,
    run_state,
)

SPEND = Spend("", "dpsgd", "zero-out", "crop", 20, 0, 39, 0.05, 2.0, 0.1, 1.0, "test")


def planned(out: Path, *methods: str, epsilons=(0.2, 0.8), clips=(0.1,), seeds=(0,)) -> list[PlannedRun]:
    return plan_sweep({"epochs": 1}, expand(methods, epsilons, clips, seeds), [], out)


def people(first: int = 0, last: int = 20) -> Account:
    return Account(named_prints([f"picture {number}" for number in range(first, last)]))


def finish(
    run: PlannedRun, score: float = 50.0, steps: int = 40, interrupted: bool = False, account: Account | None = None, **paid: Any
) -> None:
    """Leave behind what a run leaves, in its folder and, where an account is given, in its ledger."""
    if account is not None:
        method = run.combination.method
        account.pay(replace(SPEND, run=run.folder.name, method=method, last_step=steps - 1, **paid))
    run.folder.mkdir(parents=True)
    (run.folder / "config.yaml").write_text(run.config.to_yaml())
    noised = run.combination.epsilon is not None
    certificate = {
        "epsilon": {"zero-out": run.combination.epsilon if noised else "infinity"},
        "adjacency": "zero-out",
        "delta": 1e-5,
        "noise_multiplier": 2.0 if noised else 0.0,
        "sampling_rate": 0.05,
        "steps": steps,
        "noise_source": "test",
        "run": run.folder.name,
        "method": run.combination.method,
        "dataset_fingerprint": "nobody" if account is None else account.ledger.dataset,
    }
    (run.folder / "certificate.json").write_text(json.dumps(certificate))
    metrics = {"task": "pose", "dataset": "figures", "split": "test", "metrics": {"pckh@0.5": score, "pckh@0.1": 1.0}}
    (run.folder / "metrics.json").write_text(json.dumps(metrics))
    log = [{"event": "start"}, {"event": "end", "step": steps, "interrupted": interrupted}]
    (run.folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in log))


def test_methods_without_noise_run_once_per_seed() -> None:
    grid = expand(["non-private", "dpsgd", "public-only"], [0.2, 0.8], [0.01, 0.1], [0, 1, 2])
    assert len(grid) == 3 * (1 + 4 + 1)
    assert sum(one.method == "non-private" for one in grid) == 3
    assert {(one.epsilon, one.clip_norm) for one in grid if one.method == "public-only"} == {(None, None)}
    assert [one.seed for one in grid] == sorted(one.seed for one in grid), "one seed after the other"
    assert len({one.slug for one in grid}) == len(grid)


def test_names() -> None:
    noised = Combination("dpsgd", 0.8, 0.1, 1)
    assert noised.slug == "dpsgd-eps0.8-clip0.1-seed1"
    assert noised.label == "dpsgd ε=0.8 C=0.1 seed 1"
    assert Combination("public-only", None, None, 2).slug == "public-only-seed2"
    close = (Combination("dpsgd", value, 0.1, 0).slug for value in (0.123456789, 0.12345678))
    assert len(set(close)) == 2


@pytest.mark.parametrize(
    "methods, epsilons, seeds, message",
    [
        ([], [1.0], [0], "no methods"),
        (["dpsgd"], [], [0], "no epsilons"),
        (["dpsgd"], [1.0, 1.0], [0], "1.0 is given twice among the epsilons"),
        (["dpsgd"], [1.0], [0, 0], "given twice among the seeds"),
        (["dpsdg"], [1.0], [0], "did you mean 'dpsgd'"),
    ],
)
def test_grids_that_make_no_sense(methods, epsilons, seeds, message) -> None:
    with pytest.raises(HalfmaskError, match=message):
        expand(methods, epsilons, [0.1], seeds)


def test_plan_settles_every_run(tmp_path) -> None:
    grid = expand(["dpsgd", "public-only"], [0.3], [0.7], [5])
    runs = plan_sweep({"batch": 7}, grid, ["epochs=2"], tmp_path)
    assert [(run.config.method, run.config.seed, run.config.batch, run.config.epochs) for run in runs] == [
        ("dpsgd", 5, 7, 2),
        ("public-only", 5, 7, 2),
    ]
    assert (runs[0].config.epsilon, runs[0].config.clip_norm) == (0.3, 0.7)
    assert runs[0].folder == tmp_path / "runs" / "dpsgd-eps0.3-clip0.7-seed5"
    with pytest.raises(HalfmaskError, match="would override what is compared"):
        plan_sweep({}, grid, ["clip_norm=3"], tmp_path)


def test_states_of_a_run(tmp_path) -> None:
    runs = planned(tmp_path, "dpsgd", epsilons=(0.1, 0.2, 0.3, 0.4))
    new, done, stopped, lost = runs
    assert run_state(new) is RunState.NEW
    finish(done)
    assert run_state(done) is RunState.DONE and is_done(done.folder)

    finish(stopped, interrupted=True)
    assert run_state(stopped) is RunState.ABANDONED, "metrics and a certificate alone do not make it done"
    (stopped.folder / "checkpoint").mkdir()
    (stopped.folder / "checkpoint" / "state.pt").write_text("")
    assert run_state(stopped) is RunState.CONTINUE
    (stopped.folder / "config.yaml").write_text("method: dpsgd\n")
    assert run_state(stopped) is RunState.ABANDONED, "a checkpoint of other settings is of no use"

    lost.folder.mkdir(parents=True)
    (lost.folder / "config.yaml").write_text(lost.config.to_yaml())
    assert run_state(lost) is RunState.ABANDONED


def test_only_abandoned_runs_are_removed(tmp_path) -> None:
    done, lost = planned(tmp_path, "dpsgd")
    finish(done)
    finish(lost, interrupted=True)
    clear(done)
    clear(lost)
    assert done.folder.exists() and not lost.folder.exists()


def test_what_is_not_ours_or_was_paid_for_is_refused(tmp_path) -> None:
    first, second = planned(tmp_path, "dpsgd")
    first.folder.mkdir(parents=True)
    (first.folder / "thesis.txt").write_text("years of work")
    with pytest.raises(HalfmaskError, match="not a run"):
        clear(first)
    assert (first.folder / "thesis.txt").exists()
    finish(second)
    (second.folder / "config.yaml").write_text("method: dpsgd\n")
    with pytest.raises(HalfmaskError, match="finished run with other settings"):
        run_state(second)


def test_a_cut_log_is_not_an_end(tmp_path) -> None:
    (run,) = planned(tmp_path, "dpsgd", epsilons=(0.1,))
    finish(run)
    for text in ("", '{"event": "end", "interr', '{"event": "end", "interrupted": false}\n{"event": "epoch"}\n'):
        (run.folder / "log.jsonl").write_text(text)
        assert not is_done(run.folder)


def test_rows(tmp_path) -> None:
    runs = planned(tmp_path, "non-private", "dpsgd", seeds=(0, 1))
    for number, run in enumerate(runs[:-1]):
        finish(run, score=10.0 * number)
    rows = collect(runs, tmp_path)
    assert len(rows) == len(runs) - 1, "the unfinished one is left out"
    assert rows[0]["epsilon"] is None and rows[0]["certified_epsilon"] == "infinity"
    assert rows[1] | {"pckh@0.5": 10.0, "epsilon": 0.2, "clip_norm": 0.1, "seed": 0} == rows[1]
    assert rows[1]["run"] == "runs/dpsgd-eps0.2-clip0.1-seed0"
    assert rows[1]["optimiser"] == "sgd, learning rate 0.05, momentum 0.9, cosine schedule"


def test_optimiser_line_of_adamw(tmp_path) -> None:
    (run,) = plan_sweep(
        {"optimiser": {"name": "adamw", "weight_decay": 0.1, "schedule": "constant"}},
        expand(["dpsgd"], [1.0], [0.1], [0]),
        [],
        tmp_path,
    )
    assert optimiser_line(run.config) == "adamw, learning rate 0.05, weight decay 0.1, constant schedule"


def test_together_costs_more_than_one_and_is_what_the_accountant_says(tmp_path, fresh_home) -> None:
    runs = planned(tmp_path, "dpsgd", seeds=(0, 1))
    account = people()
    for run in runs:
        finish(run, account=account)
    # An earlier run on these people, and one on a dataset that shares some of them: in the second number alone.
    account.pay(replace(SPEND, run="earlier"))
    people(15, 40).pay(replace(SPEND, run="related"))
    people(100, 120).pay(replace(SPEND, run="strangers"))
    together, ever = cost_together(runs)
    one = epsilon([SampledGaussian(2.0, 0.05, 40)], 1e-5)
    assert together == pytest.approx(epsilon([SampledGaussian(2.0, 0.05, 160)], 1e-5), rel=1e-9) and together > 1.5 * one
    assert ever == pytest.approx(epsilon([SampledGaussian(2.0, 0.05, 240)], 1e-5), rel=1e-9)
    assert f"ε = {together:.4g}" in remark(runs) and f"ε = {ever:.4g}" in remark(runs)


def test_certificates_are_not_taken_at_their_word(tmp_path, fresh_home) -> None:
    """What counts is what the ledger was paid for."""
    (run,) = planned(tmp_path, "dpsgd", epsilons=(0.2,))
    finish(run, account=people())
    body = json.loads((run.folder / "certificate.json").read_text())
    (run.folder / "certificate.json").write_text(json.dumps(body | {"steps": 1, "noise_multiplier": 99.0, "ledger_total": 0.001}))
    assert cost_together([run])[0] == pytest.approx(epsilon([SampledGaussian(2.0, 0.05, 40)], 1e-5), rel=1e-9)


def test_a_run_without_noise_makes_the_ledger_infinite(tmp_path, fresh_home) -> None:
    runs = planned(tmp_path, "non-private", "dpsgd")
    account = people()
    for run in runs:
        finish(run, account=account, noise_multiplier=2.0 if run.combination.epsilon else 0.0)
    together, ever = cost_together(runs)
    assert math.isinf(ever) and math.isfinite(together)
    assert "ε = ∞, because some of it has no bound" in remark(runs)


def test_a_seeded_run_has_no_bound_and_gives_none_to_its_table(tmp_path, fresh_home) -> None:
    runs = planned(tmp_path, "dpsgd", epsilons=(0.2, 0.4))
    account = people()
    finish(runs[0], account=account)
    assert math.isfinite(cost_together(runs)[0])
    finish(runs[1], account=account, unprotected="the noise came from a seed")
    assert cost_together(runs) == (math.inf, math.inf) and "together cost ε = ∞" in remark(runs)


def test_visible_batches_cost_a_table_what_they_cost_a_run(tmp_path, fresh_home) -> None:
    (run,) = planned(tmp_path, "feature", epsilons=(0.2,))
    finish(run, account=people(), visible_batches=True)
    visible = epsilon([SampledGaussian(2.0, 0.05, 40, visible_batches=True)], 1e-5)
    assert cost_together([run]) == pytest.approx((visible, visible), rel=1e-9)
    assert visible > 2 * epsilon([SampledGaussian(2.0, 0.05, 40)], 1e-5)
