"""Several at a time: in order, a few under way, and an end at the first that fails."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from halfmask.data.threads import in_order


def test_results_come_in_the_order_of_the_items() -> None:
    def slow_at_first(item: int) -> int:
        time.sleep(0.02 if item % 7 == 0 else 0)
        return -item

    assert list(in_order(slow_at_first, range(50), workers=4)) == [-item for item in range(50)]
    assert list(in_order(abs, [])) == []


def test_only_a_few_items_are_taken_before_they_are_asked_for() -> None:
    taken = []

    def items() -> Iterator[int]:
        for item in range(10_000):
            taken.append(item)
            yield item

    results = in_order(abs, items(), workers=2)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    assert len(taken) < 100
    results.close()


def test_the_first_that_fails_ends_it() -> None:
    begun, gate = [], threading.Event()

    def fail(item: int) -> None:
        begun.append(item)
        if item == 0:
            raise ValueError("the first")
        gate.wait(0.2)

    with pytest.raises(ValueError, match="the first"):
        list(in_order(fail, range(1000), workers=2))
    assert len(begun) < 20
