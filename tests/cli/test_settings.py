"""What the commands share."""

from __future__ import annotations

import pytest

from halfmask.cli.settings import recipe_for, resolve
from halfmask.errors import HalfmaskError
from halfmask.gradients.mechanism import METHODS


@pytest.mark.parametrize("method", [None, *METHODS])
def test_a_run_without_a_recipe_gets_one_that_fits_its_method(method: str | None) -> None:
    config = resolve(recipe_for(method), {"method": method}, None)
    assert config.method == (method or "feature-projective")
    assert config.task == ("action" if METHODS[config.method].rest else "pose"), "masks divide clips alone"
    assert config.subspace.whiten == (config.method == "feature-projective"), "the best there is, where it is made for"


def test_a_method_that_nobody_knows_is_refused_with_the_nearest() -> None:
    with pytest.raises(HalfmaskError, match="did you mean 'masked'"):
        resolve(recipe_for("maskd"), {"method": "maskd"}, None)
