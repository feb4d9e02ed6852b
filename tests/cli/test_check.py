"""`halfmask check` on models of the user's own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from halfmask.cli.app import main

MODELS = """
import torch
from torch import nn

def loss(model, batch):
    return model(batch["x"]).square().sum(1)

def good():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)), loss, {"x": torch.randn(5, 3)}

def coupled():
    return nn.Linear(3, 2), lambda m, b: m(b["x"]).square().sum(1) * m(b["x"]).mean(), {"x": torch.randn(5, 3)}

def normed():
    return nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)), loss, {"x": torch.randn(5, 3)}

def alone():
    return nn.Linear(3, 2), loss, {"x": torch.randn(1, 3)}

def nested():
    def loss(model, batch):
        (x, more), y = batch
        return (model(x + more["shift"]) - y).square().sum(1)
    return nn.Linear(3, 2), loss, [(torch.randn(5, 3), {"shift": torch.randn(5, 3)}), torch.randn(5, 2)]

def named():
    return nn.Linear(3, 2), loss, {"x": torch.randn(5, 3), "name": ["a", "b", "c", "d", "e"]}

def empty():
    return nn.Linear(3, 2), loss, {"x": torch.randn(0, 3)}

class Centres(nn.Module):
    def __init__(self):
        super().__init__()
        self.centres = nn.Parameter(torch.randn(3, 4))

    def forward(self, x):
        return torch.cdist(x, self.centres)

def mixed():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), Centres()).double(), loss, {"x": torch.randn(5, 3).double()}

class Whole(nn.Module):
    def __init__(self):
        super().__init__()
        self.centres = nn.Parameter(torch.randn(3, 4))

    def forward(self, x):
        return torch.cdist(self.centres, x)

def slow():
    torch.manual_seed(0)
    turned = lambda model, batch: model(batch["x"]).square().sum(0)
    return nn.Sequential(nn.Linear(3, 4), Whole()).double(), turned, {"x": torch.randn(5, 3).double()}

def needy(x):
    return x

def ragged():
    return nn.Linear(3, 2), loss, {"x": torch.randn(5, 3), "y": torch.tensor(1.0)}

def nothing():
    return 3

number = 7
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    name = f"models_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(MODELS)
    monkeypatch.chdir(tmp_path)

    def call(factory: str, *more: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as stop:
            main(["check", factory.replace("models", name), *more])
        told = capsys.readouterr()
        return int(stop.value.code or 0), told.out + told.err

    return call


def test_a_good_model_agrees(run) -> None:
    code, told = run("models:good")
    assert code == 0 and "agrees with" in told and "fast path" in told and "0.weight" in told
    code, told = run("models:good", "--json")
    found = json.loads(told)
    assert code == 0 and found["agrees"] and max(found["parameters"].values()) <= found["tolerance"] and len(found["parameters"]) == 4


def test_batches_may_be_nested(run) -> None:
    code, told = run("models:nested")
    assert code == 0 and "agrees with" in told and "fast path" in told


@pytest.mark.filterwarnings("ignore:no fast gradient rule")
def test_what_is_slow_is_named_and_timed(run) -> None:
    code, told = run("models:mixed")
    told = " ".join(told.split())
    assert code == 0 and "mixed path" in told and "times a plain gradient" in told
    assert "slow: no rule for cdist of 1.centres: differentiated by itself, one record at a time;" in told and "ms of it" in told
    code, told = run("models:mixed", "--json")
    found = json.loads(told)
    assert found["path"] == "mixed" and 0 < found["slow_seconds"]["cdist of 1.centres"] < found["seconds"] and found["plain_seconds"] > 0
    code, told = run("models:slow", "--json")
    found = json.loads(told)
    assert code == 0 and found["agrees"] and found["path"] == "slow" and len(found["slow"]) == 1 and not found["slow_seconds"]


@pytest.mark.parametrize(
    "factory, words",
    [
        ("models:coupled", "people are coupled"),
        ("models:normed", "normalises by statistics of the batch"),
        ("models:alone", "give at least 2"),
        ("models:nothing", "returned int"),
        ("models:number", "expected a function"),
        ("models:absent", "has nothing of that name"),
        ("nowhere.at.all:make", "cannot use nowhere.at.all:make: ModuleNotFoundError"),
        ("models:needy", "TypeError"),
        ("models:ragged", "batch['y'] has a single number where batch['x'] has 5: expected one row per record"),
        ("models:named", "batch['name'][0] is a str: expected a tensor"),
        ("models:empty", "holds no record"),
        (":make", "ValueError"),
        ("models", "expected PACKAGE.MODULE:FACTORY"),
    ],
)
def test_mistakes_are_one_line(run, factory: str, words: str) -> None:
    code, told = run(factory)
    assert code == 2 and words in " ".join(told.split()) and "Traceback" not in told


def test_an_engine_that_is_wrong_is_told(run, monkeypatch: pytest.MonkeyPatch) -> None:
    from halfmask.gradients.terms import Direct

    monkeypatch.setattr("halfmask.gradients.selfcheck.SelfCheck.run", lambda *_: None)
    real = Direct.weighted_sum
    monkeypatch.setattr(Direct, "weighted_sum", lambda self, *a: 1.01 * real(self, *a))
    code, told = run("models:good")
    assert code == 1 and "differs from" in told and "too large" in told
