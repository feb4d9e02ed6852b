"""Formats are told apart by what is in a folder."""

from __future__ import annotations

import json

import pytest

from halfmask.data.formats import detect_format, read_annotations
from halfmask.errors import HalfmaskError


def test_each_format_is_found_out(lsp_folder, coco_folder, mpii_folder, tmp_path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "annotations.json").write_text('{"records": []}')
    assert [detect_format(folder) for folder in (lsp_folder(), coco_folder(), mpii_folder(), own)] == ["lsp", "coco", "mpii", "folder"]
    assert read_annotations(lsp_folder()).format == "lspet"
    assert read_annotations(lsp_folder(classic=True)).format == "lsp"
    assert read_annotations(lsp_folder(), "lsp").format == "lsp"


def test_a_folder_of_nothing_known(tmp_path) -> None:
    (tmp_path / "holiday.png").write_bytes(b"")
    with pytest.raises(HalfmaskError, match=r"in no known format \(found \.png files: 1\): expected annotations\.json"):
        detect_format(tmp_path)
    (tmp_path / "results.json").write_text(json.dumps([{"score": 1}]))
    with pytest.raises(HalfmaskError, match="in no known format"):
        read_annotations(tmp_path)


def test_options_that_do_not_fit(lsp_folder, coco_folder) -> None:
    with pytest.raises(HalfmaskError, match="unknown dataset format 'cocco'"):
        read_annotations(coco_folder(), "cocco")
    with pytest.raises(HalfmaskError, match="detected boxes are for coco"):
        read_annotations(lsp_folder(), boxes="boxes.json")
    with pytest.raises(HalfmaskError, match="has one annotation file"):
        read_annotations(lsp_folder(), annotations=("joints.mat",))
    with pytest.raises(HalfmaskError, match="holds no MPII annotations"):
        read_annotations(coco_folder(), "mpii")
    with pytest.raises(HalfmaskError, match=r"has no joints\.mat"):
        read_annotations(coco_folder(), "lspet")
