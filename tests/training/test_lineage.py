"""Weights are known again, whatever they are called and wherever they lie."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from halfmask.data.prints import named_prints
from halfmask.models.simcc import PoseModel
from halfmask.privacy.account import Account
from halfmask.privacy.spends import Spend
from halfmask.training.config import RunConfig
from halfmask.training.lineage import released_hashes, runs_behind, tensor_hashes
from halfmask.training.progress import Progress
from halfmask.training.setup import prepare

SPEND = Spend("aa", "dpsgd", "zero-out", "crop", 20, 0, 9, 0.05, 2.0, 0.1, 1.0, "test")
TRAINED = torch.arange(128.0).reshape(8, 16)


@pytest.fixture
def account(fresh_home: Path) -> Account:
    """Two runs on the same people, the second from the weights of the first, and a third whose weights were never released."""
    account = Account(named_prints([f"picture {number}" for number in range(20)]))
    for run in ("aa", "bb", "cc"):
        account.pay(replace(SPEND, run=run))
    account.record_model("aa", "0" * 64, tensor_hashes([TRAINED]))
    account.record_model("bb", "1" * 64, tensor_hashes([TRAINED + 1]), behind=["aa"])
    return account


@pytest.fixture
def behind(account: Account, tmp_path: Path) -> Callable[..., list[str]]:
    def look(tensors: dict[str, torch.Tensor], folder: str = "weights") -> list[str]:
        path = tmp_path / folder / "model.safetensors"
        path.parent.mkdir(exist_ok=True)
        save_file(tensors, path)
        return runs_behind(str(path), account)

    return look


def test_tensors_are_known_by_their_values(fresh_home: Path) -> None:
    (known,) = tensor_hashes([TRAINED])
    assert tensor_hashes([TRAINED.double(), TRAINED.clone().requires_grad_(), TRAINED.t().contiguous().t()]) == [known] * 3
    assert tensor_hashes([TRAINED + 1e-3, -TRAINED]) != [known] * 2
    by_chance = [torch.zeros(64), torch.ones(9000), torch.ones(64, dtype=torch.int64)]
    assert tensor_hashes(by_chance) == [], "equal by chance, or no weights"
    assert len(tensor_hashes([torch.cat([torch.zeros(5000), torch.arange(8.0)])])) == 1


@pytest.mark.parametrize("short", [torch.float16, torch.bfloat16])
def test_a_detour_through_a_shorter_format_hides_nothing(short: torch.dtype, account: Account) -> None:
    trained = torch.randn(8, 16, generator=torch.Generator().manual_seed(0))
    account.record_model("cc", "2" * 64, released_hashes([trained]))
    model = nn.Linear(16, 8)
    model.weight.data = trained.to(short).float()
    assert runs_behind(None, account, model) == ["cc"]


def test_weights_a_run_hardly_moved_are_not_those_it_began_with(account: Account) -> None:
    """Two runs from one public beginning: neither is behind the other, however alike they are when rounded."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 8), nn.LayerNorm(100))
    account.record_model("cc", "2" * 64, released_hashes([parameter + 1e-8 for parameter in model.parameters()]))
    assert runs_behind(None, account, model) == []


@pytest.mark.parametrize("short", [torch.float32, torch.float16])
def test_small_models_are_known_as_a_whole(short: torch.dtype, account: Account) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 1), nn.BatchNorm1d(1))
    model[1].requires_grad_(False)
    account.record_model("cc", "2" * 64, released_hashes(model[0].parameters()))
    assert runs_behind(None, account, model.to(short)) == ["cc"]
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    account.record_model("bb", "3" * 64, released_hashes(model[0].parameters()))
    assert runs_behind(None, account, model) == [], "zeros are everybody's"


def test_the_key_makes_them(fresh_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = tensor_hashes([TRAINED])
    monkeypatch.setenv("HALFMASK_HOME", str(tmp_path / "another"))
    assert tensor_hashes([TRAINED]) != known


def test_released_weights_carry_their_runs(behind: Callable[..., list[str]]) -> None:
    frozen = torch.full((9, 9), 3.0)
    assert behind({"anything": TRAINED, "frozen": frozen}) == ["aa"], "one tensor is enough, under any name"
    assert behind({"anything": TRAINED + 1}) == ["bb", "aa"], "and those behind it"
    assert behind({"frozen": frozen}) == []


def test_weights_of_no_file_have_nobody_behind_them(account: Account) -> None:
    for weights in (None, "", "embedded"):
        assert runs_behind(weights, account) == []


@pytest.mark.parametrize(("strategy", "runs"), [("full", ("aa",)), ("scratch", ())])
def test_a_network_that_starts_anew_has_nobody_behind_it(
    strategy: str, runs: tuple[str, ...], tiny_config: Callable[..., RunConfig], tmp_path: Path, fresh_home: Path, quick_accounting: None
) -> None:
    """It is given the file, and takes nothing from it."""
    path = tmp_path / "model.safetensors"
    model = PoseModel("nano", 16, (64, 48))
    save_file(model.state_dict(), path)
    known = prepare(tiny_config(strategy="full"), Progress()).account
    known.pay(replace(SPEND, run="aa"))
    known.record_model("aa", "0" * 64, tensor_hashes(model.parameters()))
    assert prepare(tiny_config(f"model.weights={path}", strategy=strategy), Progress()).behind == runs


def test_weights_in_a_runs_folder_are_that_runs(behind: Callable[..., list[str]], tmp_path: Path) -> None:
    """A checkpoint's weights are in no list of released ones."""
    other = {"anything": TRAINED * 7}
    (tmp_path / "run" / "checkpoint").mkdir(parents=True)
    torch.save({"run": "cc"}, tmp_path / "run" / "checkpoint" / "state.pt")
    assert behind(other, "run") == ["cc"] and behind(other) == []
    assert behind(other, "run/checkpoint") == ["cc"]
    (tmp_path / "run" / "checkpoint" / "state.pt").write_bytes(b"not a checkpoint")
    assert behind(other, "run") == []
    torch.save({"run": "a run on other people"}, tmp_path / "run" / "checkpoint" / "state.pt")
    assert behind(other, "run") == []
