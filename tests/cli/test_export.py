"""`halfmask export`: what it says. The file itself is looked at in tests of the export."""

from __future__ import annotations

import json

from halfmask.inference import export as exporting
from halfmask.inference.export import Exported


def test_it_says_how_large_and_how_far_from_torch(halfmask, trained, monkeypatch) -> None:
    asked = []

    def stand_in(run, out, form, flip_test, overwrite):
        asked.append((run, out, form, flip_test, overwrite))
        return Exported(out, 4_700_000, 100, {"joints": 0.0, "scores": 3.2e-6}, 0.0003, ("mind this",))

    monkeypatch.setattr(exporting, "export", stand_in)
    result = halfmask("export", trained[0], "--flip-test")
    assert result.code == 0 and "4.7 MB" in result.out and "100 pictures: joints 0, scores 3.2e-06" in result.out
    assert "0.03% of coordinates" in result.out and "mind this" in result.err
    assert asked == [(trained[0], trained[0] / "model.onnx", "onnx", True, False)]
    body = json.loads(halfmask("export", trained[0], "--json", "--overwrite").out)
    assert body["bytes"] == 4_700_000 and body["largest_difference"]["scores"] == 3.2e-6 and asked[-1][-1] is True


def test_mistakes_are_one_line(halfmask, trained, tmp_path) -> None:
    assert "no run at" in halfmask("export", tmp_path / "none").error
    assert "format" in halfmask("export", trained[0], "--format", "torchscript").error
    assert "ending in .onnx" in halfmask("export", trained[0], "--out", tmp_path / "a.bin").error
