"""Reading run folders for a report: as far as they have come, and never beyond what was asked for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.report import write_run, write_sweep

from halfmask.errors import HalfmaskError
from halfmask.report.gather import DONE, NOTHING, STOPPED, TRAINING, gather, run_folders


def end(folder: Path, **last: object) -> None:
    lines = (folder / "log.jsonl").read_text().splitlines()[:-1]
    (folder / "log.jsonl").write_text("\n".join([*lines, *([json.dumps(last)] if last else [])]) + "\n")


def test_runs_are_found_below_what_is_asked_for_and_no_link_is_followed(tmp_path: Path) -> None:
    assert write_sweep(tmp_path / "sweep", ("non-private", "dpsgd"), (0.2, 0.8), (1.0,), ("top",)) == 3
    outside = write_run(tmp_path / "outside" / "run", method="dpsgd")
    (tmp_path / "sweep" / "runs" / "link").symlink_to(outside)
    runs = gather([tmp_path / "sweep"])
    assert [(run.method, run.epsilon) for run in runs] == [("non-private", None), ("dpsgd", 0.2), ("dpsgd", 0.8)]
    assert runs[1].name == "dpsgd-eps0.2-clip1-top-seed0" and runs[1].group == "pose on figures"
    assert [run.name for run in gather([outside, tmp_path / "outside"])] == ["run"], "the same folder twice is one run"
    assert run_folders(tmp_path / "sweep", depth=1) == []


def test_how_far_a_run_has_come(tmp_path: Path) -> None:
    for name, state, last in (
        ("done", DONE, {"event": "end", "interrupted": False}),
        ("stopped", STOPPED, {"event": "end", "interrupted": True}),
        ("nothing", NOTHING, {"event": "end", "interrupted": True, "came_to_nothing": "it diverged"}),
        ("training", TRAINING, {}),
    ):
        end(write_run(tmp_path / name, method="dpsgd"), **last)
        assert gather([tmp_path / name])[0].state == state
    with (tmp_path / "training" / "log.jsonl").open("a") as file:
        file.write('{"event": "epo')
    assert len(gather([tmp_path / "training"])[0].epochs) == 10, "a line that is being written is not yet one"


def test_a_run_that_has_only_begun_is_read(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", method="dpsgd")
    for name in ("metrics.json", "certificate.json", "certificate.md", "log.jsonl"):
        (folder / name).unlink()
    (run,) = gather([folder])
    assert run.metrics == {} and run.bound is None and run.state == TRAINING and run.judged_on is None


def test_what_else_differs_is_told(tmp_path: Path) -> None:
    write_run(tmp_path / "a", method="dpsgd", seed=0)
    write_run(tmp_path / "b", ["epochs=5"], method="dpsgd", seed=0)
    assert [run.variant for run in gather([tmp_path])] == ["epochs=3.0", "epochs=5.0"]


@pytest.mark.parametrize(
    "name, body, words",
    [
        ("config.yaml", "[", "no settings"),
        ("metrics.json", "[]", "expected JSON"),
        ("certificate.json", '{"epsilon": {}}', "lacks adjacency"),
    ],
    ids=str,
)
def test_files_that_no_run_wrote_are_refused(tmp_path: Path, name: str, body: str, words: str) -> None:
    folder = write_run(tmp_path / "run", method="dpsgd")
    (folder / name).write_text(body)
    with pytest.raises(HalfmaskError, match=words):
        gather([folder])
    with pytest.raises(HalfmaskError, match="no folder at"):
        gather([tmp_path / "nowhere"])


def test_no_file_is_read_through_a_link(tmp_path: Path) -> None:
    folder, secret = write_run(tmp_path / "run", method="dpsgd"), tmp_path / "secret"
    secret.write_text('{"event": "end", "secret": 1}')
    for name in ("metrics.json", "certificate.json", "certificate.md", "log.jsonl"):
        (folder / name).unlink()
        (folder / name).symlink_to(secret)
    (run,) = gather([folder])
    assert not (run.scores or run.certificate or run.statement or run.log)
