"""Keyed numbers: uniform, independent of everything but their key. False alarms: about 1e-6 each, and the keys are fixed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from halfmask.data.keyed import ids_of_positions, mixed, record_id, uniforms

Draw = Callable[..., np.ndarray]
COUNT = 10**5
RECORDED = [[0.1791413746639029, 0.9251656152336055], [0.8275342367259392, 0.7218059342069904]]
RECORDED_ID = 4376277804700910131


def are_uniform(draw: Draw) -> bool:
    """Over ids, steps, showings and places in a row, each in turn, for ids as bad as consecutive numbers and for hashed ones."""
    some, one = np.arange(COUNT), np.array([3])
    samples = [
        draw(0, "a", 0, some)[:, 0],
        draw(0, "a", 0, ids_of_positions(COUNT))[:, 0],
        np.concatenate([draw(0, "a", step, one, 0, 20)[0] for step in range(COUNT // 20)]),
        draw(0, "a", 0, np.full(COUNT, 7), np.arange(COUNT))[:, 0],
        draw(0, "a", 0, one, 0, COUNT)[0],
    ]
    return all(((s > 0) & (s < 1)).all() and stats.kstest(s, "uniform").statistic < 0.00852 for s in samples)


def bits_are_fair(draw: Draw) -> bool:
    """Each of the first 40 bits is 1 in half of the numbers, and so are the exclusive ors of neighbouring numbers' bits."""
    numbers = np.concatenate([draw(1, "a", 0, np.arange(COUNT))[:, 0], draw(1, "a", 0, np.array([0]), 0, COUNT)[0]])
    words = (numbers * 2.0**40).astype(np.uint64)
    bound = 5.5 * math.sqrt(len(words) / 4)
    for some in (words, words[1:] ^ words[:-1]):
        ones = [int((some >> np.uint64(bit) & np.uint64(1)).sum()) for bit in range(40)]
        if any(abs(count - len(some) / 2) > bound for count in ones):
            return False
    return True


def are_independent(draw: Draw) -> bool:
    """Numbers whose keys differ in one part alone: neighbouring ids, steps, seeds, showings and places, and other uses."""
    ids = ids_of_positions(COUNT)
    base = draw(0, "a", 5, ids, 1, 2)
    others = {
        "id": np.roll(base[:, 0], 1),
        "place": base[:, 1],
        "step": draw(0, "a", 6, ids, 1)[:, 0],
        "seed": draw(1, "a", 5, ids, 1)[:, 0],
        "use": draw(0, "b", 5, ids, 1)[:, 0],
        "showing": draw(0, "a", 5, ids, 2)[:, 0],
        "step and place": draw(0, "a", 4, ids, 1, 2)[:, 1],
        "showing and place": draw(0, "a", 5, ids, 0, 2)[:, 1],
    }
    cells = 10
    for part, other in others.items():
        if part not in ("id", "place") and np.isin(base, other).any():
            return False
        table = np.histogram2d(base[:, 0], other, cells, [[0, 1], [0, 1]])[0]
        expected = COUNT / cells**2
        if float(((table - expected) ** 2 / expected).sum()) > stats.chi2.ppf(1 - 1e-6, cells**2 - 1):
            return False
    return True


CHECKS = (are_uniform, bits_are_fair, are_independent)


@pytest.mark.parametrize("check", CHECKS)
def test_the_numbers_are_random(check: Callable[[Draw], bool]) -> None:
    assert check(uniforms)


def _unmixed(seed: int, use: str, step: int, ids: np.ndarray, showing: int | np.ndarray = 0, count: int = 1) -> np.ndarray:
    words = ids.astype(np.uint64)[:, None] + np.atleast_1d(showing).astype(np.uint64)[:, None] + np.arange(count, dtype=np.uint64)
    return (words * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(12)).astype(np.float64) * 2.0**-52


FAULTS: dict[str, tuple[Callable[[Draw], bool], Draw]] = {
    "counted, not mixed": (are_independent, _unmixed),
    "every other bit the same": (bits_are_fair, lambda *a: np.floor(uniforms(*a) * 1024) / 1024 + 2.0**-12),
    "a little off": (are_uniform, lambda *a: uniforms(*a) ** 1.03),
    "the step forgotten": (are_independent, lambda seed, use, step, *a: uniforms(seed, use, 0, *a)),
    "the seed forgotten": (are_independent, lambda seed, *a: uniforms(0, *a)),
    "the use forgotten": (are_independent, lambda seed, use, *a: uniforms(seed, "", *a)),
    "the showing forgotten": (are_independent, lambda seed, use, step, ids, showing=0, count=1: uniforms(seed, use, step, ids, 0, count)),
    "one number for the whole row": (are_independent, lambda *a: np.repeat(uniforms(*a[:5]), a[5] if len(a) > 5 else 1, 1)),
    "the step added to the place": (are_independent, lambda *a: _shifted(*a)),
}


def _shifted(seed: int, use: str, step: int, ids: np.ndarray, showing: int | np.ndarray = 0, count: int = 1) -> np.ndarray:
    return uniforms(seed, use, 0, ids, showing, count + step)[:, step:]


@pytest.mark.parametrize("fault", FAULTS)
def test_the_checks_see_planted_faults(fault: str) -> None:
    check, faulty = FAULTS[fault]
    assert not check(faulty)


def test_a_number_depends_on_nobody_else() -> None:
    ids = ids_of_positions(50)
    showings = np.arange(50) % 3
    everyone = uniforms(4, "a", 9, ids, showings, 5)
    left = np.delete(np.arange(50), 20)
    assert np.array_equal(uniforms(4, "a", 9, ids[left], showings[left], 5), everyone[left])
    turned = np.random.default_rng(0).permutation(50)
    assert np.array_equal(uniforms(4, "a", 9, ids[turned], showings[turned], 5), everyone[turned])
    assert np.array_equal(uniforms(4, "a", 9, ids[7:8], int(showings[7]), 3), everyone[7:8, :3]), "nor on how many numbers are asked for"


def test_the_numbers_stay_what_they_are() -> None:
    """Recorded: a change of the mix would change every run, and caches of changed copies would be found that show something else."""
    assert uniforms(0, "a", 0, np.array([0, 2**64 - 1], np.uint64), 2, 2).tolist() == RECORDED
    assert record_id("photo.jpg", (1, 2)) == RECORDED_ID


def test_ids_are_told_apart() -> None:
    assert len({record_id(*parts) for parts in [("a", 12), ("a1", 2), ("a", "12"), ("a",), ("a", (12,)), (12, "a")]}) == 6
    assert record_id("a", np.int64(12)) == record_id("a", 12)
    assert len(np.unique(ids_of_positions(COUNT))) == COUNT
    assert np.array_equal(ids_of_positions(20)[:5], ids_of_positions(5))


def test_mixing_is_a_bijection_that_leaves_its_argument_alone() -> None:
    words = np.arange(2**16, dtype=np.uint64)
    assert len(np.unique(mixed(words))) == 2**16 and np.array_equal(words, np.arange(2**16, dtype=np.uint64))


def test_nobody_gets_nothing() -> None:
    assert uniforms(0, "a", 0, np.zeros(0, np.uint64), 0, 4).shape == (0, 4)
    assert uniforms(0, "a", 0, np.zeros(0, np.uint64), np.zeros(0, int), 4).shape == (0, 4)


def test_a_million_numbers_take_no_time() -> None:
    ids, times = ids_of_positions(COUNT), []
    for _ in range(5):
        start = time.process_time()
        uniforms(0, "a", 0, ids, 0, 10)
        times.append(time.process_time() - start)
    assert min(times) < 0.05
