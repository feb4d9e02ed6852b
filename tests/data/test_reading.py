"""From annotated people to records: crops lie in the store, and only those of people who are records."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from halfmask.data.formats import read_annotations
from halfmask.data.people import MISSING
from halfmask.data.reading import read_people

SIZE = (64, 48)


def test_whoever_is_left_out_is_not_in_the_store(fresh_home: Path, lsp_folder: Callable[..., Path]) -> None:
    folder = lsp_folder(6)
    whole, _ = read_people(read_annotations(folder), read_annotations(folder).parts["all"], SIZE)
    (folder / "images" / "im00003.jpg").unlink()
    annotations = read_annotations(folder)
    for _ in range(2):
        records, left_out = read_people(annotations, annotations.parts["all"], SIZE, on_bad="skip")
        assert [(Path(one.image).name, one.reason) for one in left_out] == [("im00003.jpg", MISSING)]
        stay = [0, 1, 3, 4, 5]
        assert isinstance(records.images, np.memmap) and records.images.mode == "r"
        np.testing.assert_array_equal(records.images, whole.images[stay])
        np.testing.assert_array_equal(records.joints, whole.joints[stay])
        assert records.ids.tolist() == whole.ids[stay].tolist()
        assert records.prints is not None and whole.prints is not None
        np.testing.assert_array_equal(records.prints.exact, whole.prints.exact[stay])
    sizes = sorted(path.stat().st_size for path in (fresh_home / "cache" / "records").rglob("images.npy"))
    assert sizes == [4096 + count * 3 * 64 * 48 for count in (5, 6)]
