"""What the commands share."""

from __future__ import annotations

import pytest

from halfmask.cli.settings import recipe_for, resolve
from halfmask.gradients.mechanism import METHODS


@pytest.mark.parametrize("method", [None, *METHODS])
def test_a_run_without_a_recipe_gets_one_that_fits_its_method(method: str | None) -> None:
    config = resolve(recipe_for(method), {"method": method}, None)
    assert config.method == (method or "feature-projective")
    assert config.subspace.whiten == (config.method == "feature-projective"), "the best there is, where it is made for"
