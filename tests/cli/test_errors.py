"""Each mistake is one clear line and exit code 2."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from halfmask.models.simcc import PoseModel


@pytest.fixture
def train(halfmask, recipe, tmp_path):
    def start(*arguments: object):
        return halfmask("train", recipe, "--method", "dpsgd", "--out", tmp_path / "run", *arguments)

    return start


def annotations(folder: Path) -> tuple[Path, dict]:
    path = folder / "annotations.json"
    return path, json.loads(path.read_text())


def test_missing_data_folder(train, tmp_path) -> None:
    assert f"no dataset at {tmp_path / 'nowhere'}" in train("--data", tmp_path / "nowhere").error


def test_empty_dataset(train, folder) -> None:
    (folder / "annotations.json").write_text('{"records": []}')
    assert "lists no records: the dataset is empty" in train("--data", folder).error


def test_nobody_private(train, folder) -> None:
    path, body = annotations(folder)
    path.write_text(json.dumps({"records": [r for r in body["records"] if r["split"] != "private"]}))
    assert "no record with split 'private'" in train("--data", folder).error


def test_annotation_without_image(halfmask, train, folder) -> None:
    (folder / "images/private/00001.jpg").unlink()
    error = train("--data", folder).error
    assert "names an image file that is missing" in error and "00001" not in error
    assert "00001.jpg" in halfmask("data", "inspect", folder).out


@pytest.mark.parametrize("damage", ["garbage", "empty", "cut"])
def test_corrupt_jpeg(train, folder, damage) -> None:
    picture = folder / "images/private/00001.jpg"
    whole = picture.read_bytes()
    picture.write_bytes({"garbage": b"not a picture" * 50, "empty": b"", "cut": whole[: len(whole) // 2]}[damage])
    error = train("--data", folder).error
    assert "names an image file that cannot be read" in error and picture.name not in error


def test_truncated_json(train, folder) -> None:
    path, _ = annotations(folder)
    path.write_text(path.read_text()[:-200])
    assert f"{path} is not valid JSON" in train("--data", folder).error


def test_record_of_the_wrong_shape(halfmask, train, folder) -> None:
    path, body = annotations(folder)
    body["records"][2]["joints"] = body["records"][2]["joints"][:5]
    path.write_text(json.dumps(body))
    error = train("--data", folder).error
    assert "1 of 31 records cannot be used: 1 × 'joints' is a list of 5 lists, expected 16×3 finite numbers" in error
    assert f"'halfmask data inspect {folder}' names them" in error
    shown = halfmask("data", "inspect", folder)
    assert f"annotations.json, record 2, image '{body['records'][2]['image']}': 'joints' is a list of 5 lists" in shown.out
    assert shown.error == error
    assert "record 2" in json.loads(halfmask("data", "inspect", folder, "--json").out)["details"][0]


@pytest.mark.parametrize("epsilon", [0, -1, "nan", "inf"])
def test_epsilon_must_be_positive(train, epsilon) -> None:
    assert "expected a number greater than 0" in train("--epsilon", epsilon).error


@pytest.mark.parametrize("delta", [0, 1, 1.5])
def test_delta_must_be_a_probability(train, delta) -> None:
    assert "expected a probability between 0 and 1" in train("--delta", delta).error


def test_delta_above_one_over_n_is_a_warning(train, tmp_path) -> None:
    result = train("--delta", 0.05)
    assert result.code == 0, result.err
    assert "warning: delta 0.05 is not below 1/N" in result.err
    assert (tmp_path / "run/certificate.json").is_file()


def test_small_delta_is_no_warning(trained) -> None:
    assert "warning" not in trained[1].err


def test_batch_above_n(train) -> None:
    assert "the batch is 41 but there are 40 private units" in train("--batch", 41).error


def test_unknown_names_suggest_the_nearest(halfmask, train) -> None:
    assert "unknown method 'dpsdg': did you mean 'dpsgd'?" in train("--method", "dpsdg").error
    assert "unknown recipe 'pose/pretrian': did you mean 'pose/pretrain'?" in halfmask("train", "pose/pretrian").error
    assert "did you mean 'learning_rate'?" in train("--set", "optimiser.learnin_rate=1").error
    assert "did you mean 'subspace'?" in train("--set", "subspac.dim=1").error
    assert "unknown strategy 'tpo': did you mean 'top'?" in train("--strategy", "tpo").error
    assert "unknown adjacency 'zeroout'" in train("--adjacency", "zeroout").error
    assert "no recipe at nowhere.yaml" in halfmask("train", "nowhere.yaml").error


def test_settings_of_the_wrong_kind(train) -> None:
    assert "expected key=value" in train("--set", "epochs").error
    assert "expected an int" in train("--set", "batch=many").error
    assert "expected a group of settings" in train("--set", "model=nano").error
    assert "not valid YAML" in train("--set", "batch=[1").error


def test_recipe_that_is_not_a_recipe(halfmask, tmp_path) -> None:
    path = tmp_path / "odd.yaml"
    path.write_text("a: [")
    assert "not valid YAML" in halfmask("train", path).error
    path.write_text("- a\n- b")
    assert "expected names and values" in halfmask("train", path).error
    path.write_text("epoch: 3")
    assert "unknown setting in recipe 'epoch': did you mean 'epochs'?" in halfmask("train", path).error


def test_weights_of_another_architecture(train, tmp_path) -> None:
    other, noise, junk = (tmp_path / name for name in ("5m.safetensors", "noise.safetensors", "junk.safetensors"))
    save_file(PoseModel("5m", 16, (128, 96)).state_dict(), other)
    save_file({"some.weight": torch.zeros(3)}, noise)
    junk.write_bytes(b"junk")
    for path in (other, noise):
        error = train("--set", f"model.weights={path}").error
        assert str(path) in error and "checkpoint of another architecture" in error
    assert "not a readable weight file" in train("--set", f"model.weights={junk}").error
    assert "no weight file at" in train("--set", f"model.weights={tmp_path}/none.pt").error


def test_out_that_holds_a_run(halfmask, recipe, trained) -> None:
    before = (trained[0] / "config.yaml").read_text()
    assert "already holds a run" in halfmask("train", recipe, "--out", trained[0]).error
    assert (trained[0] / "config.yaml").read_text() == before


def test_folder_without_a_model(halfmask, trained, tmp_path) -> None:
    (tmp_path / "config.yaml").write_text((trained[0] / "config.yaml").read_text())
    assert "has no model.safetensors" in halfmask("evaluate", tmp_path).error
    picture = tmp_path / "a.png"
    picture.write_bytes(b"")
    assert "has no model.safetensors" in halfmask("predict", tmp_path, picture, "--out", tmp_path / "p").error
    assert "no run at" in halfmask("evaluate", tmp_path / "none").error


def test_rdp_with_replace_one(train) -> None:
    assert "RDP accountant has no bound" in train("--accountant", "rdp", "--adjacency", "replace-one").error


@pytest.mark.parametrize("method", ["feature", "feature-projective"])
def test_add_remove_with_a_feature_method(train, method) -> None:
    assert "'add-remove' has no meaning for method" in train("--method", method, "--adjacency", "add-remove").error


def test_unit_subject_without_subjects(train, folder) -> None:
    path, body = annotations(folder)
    for record in body["records"]:
        del record["subject"]
    path.write_text(json.dumps(body))
    assert "10 of 10 records of 'private' have no subject id" in train("--data", folder, "--unit", "subject", "--batch", 2).error


def test_device_that_is_not_there(train) -> None:
    assert "device 'abacus' cannot be used here" in train("--device", "abacus").error


def test_folder_that_cannot_be_written(halfmask, recipe, tmp_path) -> None:
    (tmp_path / "file").write_text("")
    assert str(tmp_path / "file") in halfmask("train", recipe, "--out", tmp_path / "file" / "run").error


def test_usage_errors_exit_with_2(halfmask) -> None:
    for arguments in (["train", "--no-such-option"], ["no-such-command"], ["evaluate"], ["train", "--epsilon", "little"]):
        result = halfmask(*arguments)
        assert result.code == 2 and "Traceback" not in result.err and result.err.strip()


def test_exit_code_of_the_process(tmp_path, shared_home) -> None:
    command = [sys.executable, "-m", "halfmask.cli.app", "evaluate", str(tmp_path / "none")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.strip().splitlines() == [f"error: no run at {tmp_path / 'none'}: give the folder that 'halfmask train' wrote"]
