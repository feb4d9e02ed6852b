"""Networks that people bring: exact, and on the fast path."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import pytest

from halfmask.gradients.check import check_model

pytest.importorskip("transformers")
sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks.networks import BROUGHT, brought


@pytest.mark.parametrize("name", BROUGHT)
def test_networks_that_people_bring_are_exact_and_fast(name: str) -> None:
    """In double precision, to 1e-9, against gradients taken one record at a time."""
    model, loss_fn, batch = brought(name)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="no fast gradient rule")
        found = check_model(model, loss_fn, batch)
    assert found.tolerance == 1e-9 and found.agrees, found.errors
    assert found.path == "fast" and set(found.errors) == {key for key, p in model.named_parameters() if p.requires_grad}
