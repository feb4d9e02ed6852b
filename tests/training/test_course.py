"""A run that came to nothing is stopped, whatever its loss is counted from."""

from __future__ import annotations

import pytest
import torch

from halfmask.training.course import Diverged, check_course


@pytest.mark.parametrize(("first", "now", "stops"), [(2.0, 29.0, False), (2.0, 31.0, True), (-19.8, -19.6, False), (-20.0, 200.0, True)])
def test_a_loss_explodes_from_wherever_it_was(first: float, now: float, stops: bool) -> None:
    if stops:
        with pytest.raises(Diverged, match="went from"):
            check_course(3, [torch.ones(2)], first, now)
    else:
        check_course(3, [torch.ones(2)], first, now)


def test_what_is_no_number_stops_a_run() -> None:
    with pytest.raises(Diverged, match="finite"):
        check_course(3, [torch.tensor([1.0, float("nan")])], None, None)
    with pytest.raises(Diverged, match="finite"):
        check_course(3, [torch.ones(2)], 1.0, float("inf"))
