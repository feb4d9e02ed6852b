"""The noise has the law it is accounted for, and nobody can guess it. False alarms: 1e-6 each, and the streams are fixed."""

from __future__ import annotations

import math
import os
from collections.abc import Callable

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from scipy import stats
from torch import Tensor

from halfmask.errors import HalfmaskError
from halfmask.privacy.noise import RandomStream, open_stream

Draw = Callable[[int], Tensor]


def stream(seed: int = 0, use: str = "noise", start: int = 0) -> RandomStream:
    return RandomStream.seeded(use, seed, start)


def variance_is_one(draw: Draw) -> bool:
    mean_square = float(draw(10**6).square().mean())
    return 0.99310 <= mean_square <= 1.00693


def is_normal(draw: Draw) -> bool:
    return stats.kstest(draw(10**5).numpy(), "norm").statistic < 0.00852


def is_uncorrelated(draw: Draw) -> bool:
    """Neighbouring numbers, and the two halves that Box–Muller makes of one pair; 4.9 standard errors."""
    numbers = draw(10**6)
    bound = 4.9 / math.sqrt(len(numbers) / 2)
    half = len(numbers) // 2
    pairs = ((numbers[:-1], numbers[1:]), (numbers[:half], numbers[half:]))
    return all(
        abs(float((f(a) * f(b)).mean())) < scale * bound
        for a, b in pairs
        for f, scale in ((lambda x: x, 1.0), (lambda x: x.square() - 1, 2.0))
    )


def never_repeats(draw: Draw) -> bool:
    """More numbers than are made at once, twice over: two that are equal would hide two coordinates by one and the same noise."""
    numbers = draw(2**18 + 4099)
    return len(numbers.unique()) == len(numbers)


def halves_are_independent(draw: Draw) -> bool:
    """Box–Muller makes both halves of a piece of one radius and one angle: jointly normal only if cosine meets sine of the same angle.

    Then x² + y² is exponential, the angle uniform, each of them in every part of the other's range, and the signs of x and y fair coins.
    """
    numbers = draw(2**17)
    x, y = numbers.view(2, -1).numpy()
    count = len(x)
    energy, turn = np.exp(-(x**2 + y**2) / 2), np.arctan2(y, x) / (2 * np.pi) + 0.5
    correlated = max(abs(float(np.mean(f(x) * f(y))) / scale) for f, scale in ((lambda v: v, 1.0), (lambda v: v**2 - 1, 2.0)))
    marginals = max(stats.kstest(energy, "uniform").statistic, stats.kstest(turn, "uniform").statistic)
    cells = np.histogram2d(energy, turn, 12, [[0, 1], [0, 1]])[0]
    chi2 = float(((cells - count / 144) ** 2 / (count / 144)).sum())
    # 1e-6 each: 4.9 standard errors, Kolmogorov's distance, and χ² with 143 degrees of freedom.
    return correlated < 4.9 / math.sqrt(count) and marginals < 2.694 / math.sqrt(count) and chi2 < float(stats.chi2.ppf(1 - 1e-6, 143))


@pytest.mark.parametrize("sum_of_four", [False, True])
@pytest.mark.parametrize("check", [variance_is_one, is_normal, is_uncorrelated, never_repeats, halves_are_independent])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_noise_is_standard_normal(check: Callable[[Draw], bool], sum_of_four: bool, seed: int) -> None:
    source = stream(seed)
    assert check(lambda count: source.gaussian(count, sum_of_four))


def test_the_secure_source_is_standard_normal_too() -> None:
    assert variance_is_one(RandomStream.secure().gaussian)


FAULTS: dict[str, tuple[Callable[[Draw], bool], Callable[[RandomStream, int], Tensor]]] = {
    "off": (variance_is_one, lambda s, n: torch.zeros(n)),
    "half": (variance_is_one, lambda s, n: s.gaussian(n) / 2),
    "one per cent short": (variance_is_one, lambda s, n: s.gaussian(n) * 0.99),
    "four not halved": (variance_is_one, lambda s, n: s.gaussian(4 * n).view(4, n).sum(0)),
    "uniform": (is_normal, lambda s, n: (s.uniform(n) - 0.5) * math.sqrt(12)),
    "laplace": (
        is_normal,
        lambda s, n: torch.from_numpy(stats.laplace.ppf(s.uniform(n).numpy())) / math.sqrt(2),
    ),
    "shifted": (is_normal, lambda s, n: s.gaussian(n) + 0.05),
    "half repeated": (is_uncorrelated, lambda s, n: s.gaussian(n // 2).repeat(2)),
    "pairs repeated": (is_uncorrelated, lambda s, n: s.gaussian(n // 2).repeat_interleave(2)),
    "one uniform for radius and angle": (is_uncorrelated, lambda s, n: _badly_paired(s, n)),
    "the first piece again": (never_repeats, lambda s, n: s.gaussian(2**17).repeat(n // 2**17 + 1)[:n]),
    "one number twice": (never_repeats, lambda s, n: torch.cat([numbers := s.gaussian(n - 1), numbers[:1]])),
    "cosine twice": (halves_are_independent, lambda s, n: _paired(s, n, torch.cos, torch.cos)),
    "sine of the cosine": (halves_are_independent, lambda s, n: _paired(s, n, torch.cos, lambda a: a.cos().sin())),
    "sine of half the angle": (halves_are_independent, lambda s, n: _paired(s, n, torch.cos, lambda a: (a / 2).sin())),
    "sine of twice the angle": (halves_are_independent, lambda s, n: _paired(s, n, torch.cos, lambda a: (2 * a).sin())),
    "sine of another angle": (halves_are_independent, lambda s, n: _paired(s, n, torch.cos, lambda a: a.roll(1).sin())),
    "half a turn": (halves_are_independent, lambda s, n: _paired(s, n, lambda a: (a / 2).cos(), lambda a: (a / 2).sin())),
}


def _badly_paired(source: RandomStream, count: int) -> Tensor:
    uniform = source.uniform(count // 2)
    radius, angle = (-2 * uniform.log()).sqrt(), 2 * torch.pi * uniform
    return torch.cat([radius * angle.cos(), radius * angle.sin()])


def _paired(source: RandomStream, count: int, first: Callable[[Tensor], Tensor], second: Callable[[Tensor], Tensor]) -> Tensor:
    radius, angle = (-2 * source.uniform(count // 2).log()).sqrt(), 2 * torch.pi * source.uniform(count // 2)
    return torch.cat([radius * first(angle), radius * second(angle)])


def test_the_pairs_of_the_planted_faults_are_well_made() -> None:
    source = stream()
    assert halves_are_independent(lambda count: _paired(source, count, torch.cos, torch.sin))


@pytest.mark.parametrize("fault", FAULTS)
def test_the_checks_see_planted_faults(fault: str) -> None:
    check, faulty = FAULTS[fault]
    source = stream()
    assert not check(lambda count: faulty(source, count))


@pytest.mark.parametrize("count", [0, 1, 2, 7, 1000])
@pytest.mark.parametrize("sum_of_four", [False, True])
def test_counts_and_precision(count: int, sum_of_four: bool) -> None:
    numbers = stream().gaussian(count, sum_of_four)
    assert numbers.shape == (count,) and numbers.dtype == torch.float64
    assert torch.isfinite(numbers).all()


def test_uniform_fills_the_open_interval() -> None:
    numbers = stream().uniform(10**6)
    assert numbers.dtype == torch.float64
    assert 0 < numbers.min() < 1e-4 and 1 - 1e-4 < numbers.max() < 1
    assert stats.kstest(numbers[: 10**5].numpy(), "uniform").statistic < 0.00852
    assert len(numbers.unique()) == len(numbers)


@pytest.mark.parametrize("word", [0, 2**64 - 1, 2**63, 2**63 - 1, 2**11 - 1])
def test_uniform_stays_open_at_extreme_bits(word: int, monkeypatch: pytest.MonkeyPatch) -> None:
    source = stream()

    class Constant:
        def update_into(self, plain: bytes, out: bytearray) -> None:
            out[: len(plain)] = np.full(len(plain) // 8, word, np.uint64).tobytes()

    monkeypatch.setattr(source, "_cipher", Constant())
    number = float(source.uniform(1)[0])
    assert 0 < number < 1
    assert torch.isfinite(source.gaussian(2)).all()


def test_a_seed_repeats() -> None:
    assert torch.equal(stream(3).gaussian(100), stream(3).gaussian(100))
    first, second = stream(3), stream(3)
    assert torch.equal(first.uniform(10), second.uniform(10))
    assert torch.equal(first.uniform(10), second.uniform(10))


def test_a_stream_never_repeats_itself() -> None:
    source = stream()
    assert not torch.isin(source.uniform(1000), source.uniform(1000)).any()


@pytest.mark.parametrize("other", [stream(1), stream(use="coins"), stream(start=1), stream(1, start=10), stream(11, start=0)])
def test_other_uses_seeds_and_starts_are_other_streams(other: RandomStream) -> None:
    mine, theirs = stream().gaussian(10**4), other.gaussian(10**4)
    assert not torch.isin(mine, theirs).any()
    assert abs(float((mine * theirs).mean())) < 4.9 / 100


def test_all_256_bits_of_a_secure_key_come_from_the_system_each_time_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checked against AES itself: a key that is shortened or hashed on the way to the cipher makes another keystream."""
    given: list[bytes] = []
    real = os.urandom
    monkeypatch.setattr("halfmask.privacy.noise.os.urandom", lambda size: given.append(real(size)) or given[-1])
    streams = [RandomStream.secure(), open_stream("noise", None), open_stream("coins", None)]
    assert [len(key) for key in given] == [32, 32, 32] and len(set(given)) == 3
    for one, key in zip(streams, given, strict=True):
        keystream = Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor().update(bytes(8 * 100))
        words = np.frombuffer(keystream, np.uint64) >> np.uint64(12)
        assert one.uniform(100).tolist() == ((words + 0.5) * 2.0**-52).tolist()


def test_a_fork_gets_no_noise_of_its_parent() -> None:
    """Parent and child would go on with the same numbers."""
    source = stream()
    source.uniform(3)
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        said = []
        for draw in (lambda: source.uniform(4), lambda: source.gaussian(4), lambda: source.gaussian(4, True), lambda: stream().gaussian(4)):
            try:
                draw()
                said.append("numbers")
            except HalfmaskError as error:
                said.append(str(error))
        os.write(writer, "\n".join(said).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        *refused, own = pipe.read().splitlines()
    os.waitpid(child, 0)
    assert len(refused) == 3 and all("same noise" in text and "after forking" in text for text in refused)
    assert own == "numbers", "a stream that the child opened itself is its own"
    again = stream()
    again.uniform(3)
    assert torch.equal(source.gaussian(4), again.gaussian(4)), "the parent goes on"


def test_secure_streams_differ() -> None:
    assert not torch.equal(RandomStream.secure().uniform(16), RandomStream.secure().uniform(16))


def test_opening_a_stream_uses_the_seed_only_if_there_is_one() -> None:
    assert torch.equal(open_stream("noise", 5, 2).uniform(9), RandomStream.seeded("noise", 5, 2).uniform(9))
    assert torch.equal(open_stream("noise", 0).uniform(9), RandomStream.seeded("noise", 0).uniform(9))
    assert not torch.equal(open_stream("noise", None).uniform(9), open_stream("noise", None).uniform(9))


def test_a_stream_says_where_it_comes_from() -> None:
    assert "insecure seed 7" in open_stream("noise", 7).source
    assert "operating system" in open_stream("noise", None).source


def test_no_global_seed_reaches_the_secure_stream() -> None:
    draws = []
    for _ in range(2):
        torch.manual_seed(0)
        np.random.seed(0)
        draws.append(open_stream("noise", None).uniform(8))
    assert not torch.equal(*draws)
