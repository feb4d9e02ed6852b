"""Does a view lose anything? Tried on random pictures before a view is declared public.

A blur of one pixel, or one so narrow that it can be undone, is the image itself: with such a ψ everything private would have been called
public. How far ψ(x) is from x does not tell, because a slight blur, a negative, a gain or a mirror image can all be undone. So a small
restorer learns to undo the view: a linear map from a neighbourhood of ψ(x) to the pixel of x, fitted on some pictures and judged on others.
What it cannot bring back is what the view loses.

The pictures are random, with the statistics of photographs, and the same for everybody: a refusal that looked at private images would
say something about them. The trial catches views that lose nothing to speak of. It does not say that a view which passes is safe;
what of a person can be told from it is for `halfmask audit view` to measure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

from halfmask.errors import HalfmaskError
from halfmask.views.base import ImageView

# Of 255 grey levels. A blur of 1×1 or of σ = 0.05 loses 0.00, 25×25 with σ = 0.3 loses 0.05, 3×3 with σ = 0.4 0.34, 25×25 with σ = 0.7
# 1.7, 3×3 with σ = 1 4.8, and 16 grey levels in place of 256 lose 3.8: in all of them a person is as well known as before. Blurs of
# 5×5 with σ = 2, 9×9 with σ = 3 and the customary 25×25 with σ = 10 lose 8.5, 11.8 and 21; cells of 2 (256 levels), 8 and 16 pixels (16
# levels) 7.1, 18 and 25; a constant, which loses everything, 50.
LEAST_LOSS = 5.0

_ROWS, _COLUMNS = 128, 96
_FITTED, _JUDGED, _PIXELS = 4, 2, 2000
_SEED = 20240501
# The neighbourhood a pixel is restored from; where more would help, the loss is far above the least.
_REACH = 3
# Pixels nearer to the border are not judged: a view that moves the picture by a few pixels loses some of them, and nothing else.
_MARGIN = 8
_RIDGE = 1e-3
_EDGES = 6
# Amplitudes fall as frequency to this power; with it, views lose within a tenth of what they lose of photographs of people.
_FALL = 1.4

# A mirror image is the image.
_TURNS: tuple[Callable[[np.ndarray], np.ndarray], ...] = (
    lambda picture: picture,
    lambda picture: picture[:, ::-1],
    lambda picture: picture[::-1],
    lambda picture: picture[::-1, ::-1],
)


def check_view(view: ImageView) -> None:
    """Refuse a view that is as good as the image itself."""
    loss = loss_of(view)
    if loss < LEAST_LOSS:
        raise HalfmaskError(
            f"the view declared public is {view.describe()}, and it can be undone up to {loss:.2g} of 255 grey levels (tried on random "
            f"pictures): as good as publishing the images. Expected a loss of {LEAST_LOSS:g} or more: blur more widely or take larger "
            "cells with view.options, or publish nothing with the view 'constant'"
        )


@cache
def loss_of(view: ImageView) -> float:
    """What a view loses of a random picture after the best restoration we know: the root of the mean squared error, in grey levels."""
    pictures = random_pictures()
    seen = [view(picture.copy()) for picture in pictures]
    return min(_restored_error([turn(one) for one in seen], pictures) for turn in _TURNS)


@cache
def random_pictures() -> tuple[np.ndarray, ...]:
    """A handful of pictures that nobody is on: coloured noise with the spectrum of photographs, and hard edges."""
    rng = np.random.default_rng(_SEED)
    return tuple(_random_picture(rng) for _ in range(_FITTED + _JUDGED))


def _random_picture(rng: np.random.Generator) -> np.ndarray:
    down, across = np.fft.fftfreq(_ROWS)[:, None], np.fft.rfftfreq(_COLUMNS)[None, :]
    frequency = np.maximum(np.hypot(down, across), 1 / _ROWS)
    noise = np.fft.irfft2(np.fft.rfft2(rng.standard_normal((3, _ROWS, _COLUMNS))) / frequency**_FALL, (_ROWS, _COLUMNS))
    noise = (noise - noise.mean((1, 2), keepdims=True)) / noise.std((1, 2), keepdims=True)
    # The colours of photographs go together: most of what differs is brightness.
    picture = 0.8 * noise[:1] + 0.35 * noise
    rows, columns = np.mgrid[:_ROWS, :_COLUMNS]
    for _ in range(_EDGES):
        angle, offset = rng.uniform(0, 2 * np.pi), rng.uniform(-30, 30)
        beyond = (rows - _ROWS / 2) * np.sin(angle) + (columns - _COLUMNS / 2) * np.cos(angle) > offset
        picture = picture + beyond * rng.normal(0, 0.5, (3, 1, 1))
    grey = 128 + 45 * (picture - picture.mean())
    return np.ascontiguousarray(np.clip(grey, 0, 255).round().astype(np.uint8).transpose(1, 2, 0))


def _restored_error(seen: Sequence[np.ndarray], pictures: Sequence[np.ndarray]) -> float:
    """Learn to undo a view on the first pictures; the error on the others, in grey levels."""
    rng = np.random.default_rng(_SEED)
    clues, wanted = [], []
    for view, picture in zip(seen, pictures, strict=True):
        rows = rng.integers(_MARGIN, _ROWS - _MARGIN, _PIXELS)
        columns = rng.integers(_MARGIN, _COLUMNS - _MARGIN, _PIXELS)
        clues.append(_clues(view, rows, columns))
        wanted.append(picture[rows, columns].astype(np.float32) / 255)
    known, answers = np.concatenate(clues[:_FITTED]), np.concatenate(wanted[:_FITTED])
    normal = (known.T @ known).astype(np.float64) + _RIDGE * np.eye(known.shape[1])
    weights = np.linalg.solve(normal, (known.T @ answers).astype(np.float64))
    restored = np.clip(np.concatenate(clues[_FITTED:]) @ weights, 0, 1)
    return 255 * float(np.sqrt(np.mean((restored - np.concatenate(wanted[_FITTED:])) ** 2)))


def _clues(view: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """What pixels are restored from: their neighbourhoods in the view, powers of their own values (which undo a gamma), and a one."""
    reach = np.arange(-_REACH, _REACH + 1)
    values = view.astype(np.float32) / 255
    near = values[rows[:, None, None] + reach[:, None], columns[:, None, None] + reach].reshape(len(rows), -1)
    own = values[rows, columns]
    return np.concatenate([near, own**2, own**3, np.ones((len(rows), 1), np.float32)], axis=1)
