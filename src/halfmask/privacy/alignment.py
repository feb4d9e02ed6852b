"""Whether two sketches show the same photograph.

Shared words say which pictures to compare; where the words stand says how one picture lies on the other (a scale, a shift, perhaps
mirrored); then the thumbnails are laid upon each other as exactly as they will go and compared place by place. Video frames of one room
agree everywhere but where the person stands, so it is the *largest* difference anywhere that decides, not the likeness of the whole.

`benchmarks/recognition.py` measures both errors on real pictures and holds the sweep that chose the constants.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy.sparse

from halfmask.privacy.sketches import Sketches, blur_of, thumbnail_shape

# The largest local difference of two pictures that are the same, in units of their contrast. Re-encoding, resizing and cuts stay below 0.15
# as a rule, blown highlights below 0.4; the nearest of different pictures were at 0.23 (two people alike before one wall). One false
# confirmation joins two accounts for good, and one missed picture of many hardly matters, so the threshold is on the safe side.
SAME = 0.2
# The same, for a scene of which a dataset holds several pictures (a fixed camera): there, someone else before the same wall is the likely
# alternative, and a person who is small or dark changes little (0.08 at least, in the dark or at the very edge).
SAME_IN_A_RECURRING_SCENE = 0.08
# How alike two pictures must be as a whole, and how much of the smaller must lie on the other. The cuts that are promised leave at least
# 0.64 of the larger and all of the smaller.
_CORRELATION, _OVERLAP = 0.95, 0.6
# And how much of the larger must be covered, and how much more one direction may be stretched than the other (as a logarithm): a picture
# of hardly more than an edge fits a small or squeezed part of many.
_COVERED, _STRETCH = 0.35, 0.15
# A scene recurs if this many other pictures look like it all over without being the same.
_LOOKALIKE_CORRELATION, _RECURRING = 0.9, 2

# Pictures that are compared with each one, those with the most shared words (rare ones count for more) first. A copy is nearly always the
# first; the others are there for scenes that recur.
_CANDIDATES = 8
# Work is cut into pieces so that memory does not grow with the datasets.
_BLOCK_ROWS, _BLOCK_PAIRS = 256, 256
# Shared words that are looked at for the way one picture lies on the other.
_MATCHES = 48
# How far from its expected place a word may stand, in pixels of the picture scaled to one area, and by how much its scale may be off (as a
# logarithm: two steps of the ladder).
_TOLERANCE, _SCALE_TOLERANCE = 5.0, 0.3
# Copies have 40 as a rule and 10 at least, unless hardly anything is left of them; half of all pairs of strangers have up to 6.
_FEWEST_AGREEING = 7
# Places across and down at which two pictures are compared, how many of them make a local difference, and how many at each edge are left
# out.
_GRID, _BOX, _EDGE = 28, 3, 1
# Gauss–Newton: rounds, and the longest step in parts of the picture. Pairs that correlate less than `_HOPELESS` after the first are left.
_ROUNDS, _LARGEST_STEP, _HOPELESS = 5, 0.06, 0.6
# In pixels of a thumbnail: the blur it is looked at through, without which values between pixels would be blurred more than values on
# them; and the blur it has already.
_SAMPLING_BLUR, _OWN_BLUR = 0.6, 0.7


@dataclass(frozen=True)
class Likeness:
    """How pairs of pictures agree once one is laid on the other.

    Attributes:
        agreeing: shared words that stand where they should.
        overlap: share of the smaller picture that lies on the other; 0 where no cut and resize would lay it so.
        correlation: of the parts that overlap.
        difference: the largest of any place, in units of the pictures' contrast; infinite where there is no likeness.
    """

    agreeing: np.ndarray
    overlap: np.ndarray
    correlation: np.ndarray
    difference: np.ndarray


def same_pictures(mine: Sketches, theirs: Sketches) -> np.ndarray:
    """P×2 rows (of `mine`, of `theirs`) that show the same photograph."""
    pairs = candidates(mine.words, theirs.words)
    return pairs[confirmed(pairs, compare(mine, theirs, pairs))]


def confirmed(pairs: np.ndarray, likeness: Likeness, same: float = SAME, recurring: float = SAME_IN_A_RECURRING_SCENE) -> np.ndarray:
    """Which pairs are the same photograph; the two thresholds are arguments for the sweep that chose them."""
    overlaps = likeness.overlap >= _OVERLAP
    lookalike = overlaps & (likeness.correlation >= _LOOKALIKE_CORRELATION) & ~(likeness.difference < same)
    recurs = np.zeros(len(pairs), bool)
    for side in pairs.T:
        recurs |= (np.bincount(side, lookalike)[side] if len(pairs) else np.zeros(0)) >= _RECURRING
    return overlaps & (likeness.correlation >= _CORRELATION) & (likeness.difference < np.where(recurs, recurring, same))


def candidates(mine: np.ndarray, theirs: np.ndarray, most: int = _CANDIDATES) -> np.ndarray:
    """P×2 rows that share the most words, at most so many for each row of `mine`."""
    vocabulary = int(max(mine.max(initial=0), theirs.max(initial=0))) + 1
    ours, others = _occurrences(mine, vocabulary), _occurrences(theirs, vocabulary)
    pictures = np.asarray(ours.sum(0) + others.sum(0)).ravel()
    rarity = np.log((len(mine) + len(theirs) + 1) / np.maximum(pictures, 1)).astype(np.float32)
    weighted = scipy.sparse.csr_matrix(others.multiply(rarity).T)
    found = [np.zeros((0, 2), np.int64)]
    for start in range(0, len(mine), _BLOCK_ROWS):
        scores = (ours[start : start + _BLOCK_ROWS] @ weighted).toarray()
        keep = min(most, scores.shape[1])
        best = np.argpartition(-scores, keep - 1, axis=1)[:, :keep] if keep else np.zeros((len(scores), 0), np.int64)
        rows, columns = np.repeat(np.arange(len(scores)), keep), best.ravel()
        some = scores[rows, columns] > 0
        found.append(np.column_stack([rows + start, columns])[some])
    return np.concatenate(found)


def _occurrences(words: np.ndarray, vocabulary: int) -> scipy.sparse.csr_matrix:
    rows, columns = np.nonzero(words)
    matrix = scipy.sparse.csr_matrix((np.ones(len(rows), np.float32), (rows, words[rows, columns])), shape=(len(words), vocabulary))
    matrix.data[:] = 1  # a word that occurs twice in a picture says no more than one that occurs once
    return matrix


def compare(mine: Sketches, theirs: Sketches, pairs: np.ndarray) -> Likeness:
    """Lay each pair on each other and measure how they differ."""
    parts = [_compare_block(mine.take(block[:, 0]), theirs.take(block[:, 1])) for block in _blocks(pairs)]
    columns = zip(*parts, strict=True) if parts else [[np.zeros(0, np.float32)]] * 4
    return Likeness(*(np.concatenate(column) for column in columns))


def _blocks(pairs: np.ndarray) -> Iterator[np.ndarray]:
    for start in range(0, len(pairs), _BLOCK_PAIRS):
        yield pairs[start : start + _BLOCK_PAIRS]


def _compare_block(a: Sketches, b: Sketches) -> tuple[np.ndarray, ...]:
    agreeing, lay = _lay(a, b)
    overlap, correlation = np.zeros(len(a), np.float32), np.zeros(len(a), np.float32)
    difference = np.full(len(a), np.inf, np.float32)
    rows = np.flatnonzero(agreeing >= _FEWEST_AGREEING)
    if len(rows):
        overlap[rows], correlation[rows], difference[rows] = _refine(a.take(rows), b.take(rows), lay[rows])
    return agreeing, overlap, correlation, difference


def _lay(a: Sketches, b: Sketches) -> tuple[np.ndarray, np.ndarray]:
    """The likeliest way each b lies on its a, from the words they share.

    Every shared word proposes a scale, a shift and whether b is mirrored; the proposal most others agree with wins.

    Returns:
        How many words agree with it, and P×4 numbers: a's place across is lay[0] + lay[1] · b's, down lay[2] + lay[3] · b's, all from 0
        to 1.
    """
    count, every = len(a), np.arange(len(a))
    pair, i, j = np.nonzero((a.words[:, :, None] == b.words[:, None, :]) & (a.words[:, :, None] > 0))
    rank = np.arange(len(pair)) - np.searchsorted(pair, pair)
    pair, i, j, rank = (part[rank < _MATCHES] for part in (pair, i, j, rank))

    def padded(values: np.ndarray, fill: float = 0.0) -> np.ndarray:
        out = np.full((count, _MATCHES), fill, np.float32)
        out[pair, rank] = values
        return out

    (place_a, place_b), (size_a, size_b) = (a.places[pair, i], b.places[pair, j]), (a.sizes.astype(np.float32), b.sizes.astype(np.float32))
    mirrored = (place_a[:, 2] >= 128) != (place_b[:, 2] >= 128)
    # From here on a mirrored b is looked at in a mirror.
    across_b = np.where(mirrored, 255.0 - place_b[:, 0], place_b[:, 0])
    flip = padded(mirrored, np.nan)  # not equal to anything where there is no word
    scale = padded(np.log(blur_of(place_a[:, 2] & 127) / blur_of(place_b[:, 2] & 127)))
    x_a, y_a = padded(place_a[:, 0] * size_a[pair, 1] / 255), padded(place_a[:, 1] * size_a[pair, 0] / 255)
    x_b, y_b = padded(across_b * size_b[pair, 1] / 255), padded(place_b[:, 1] * size_b[pair, 0] / 255)
    factor = np.exp(scale)[:, :, None]
    good = (flip[:, :, None] == flip[:, None, :]) & (np.abs(_apart(scale)) < _SCALE_TOLERANCE)
    good &= np.abs(factor * _apart(x_b) - _apart(x_a)) < _TOLERANCE
    good &= np.abs(factor * _apart(y_b) - _apart(y_a)) < _TOLERANCE
    best = good.sum(2).argmax(1)
    weight = good[every, best].astype(np.float32)
    agreeing = weight.sum(1)
    total = np.maximum(agreeing, 1)

    means = [(values * weight).sum(1) / total for values in (x_a, y_a, x_b, y_b)]
    dx_a, dy_a, dx_b, dy_b = ((values - mean[:, None]) * weight for values, mean in zip((x_a, y_a, x_b, y_b), means, strict=True))
    # A little of the scale that the rungs give, for words that all stand in one spot.
    prior, guess = 50.0, np.exp((scale * weight).sum(1) / total)
    zoom = ((dx_a * dx_b + dy_a * dy_b).sum(1) + prior * guess) / ((dx_b**2 + dy_b**2).sum(1) + prior)
    left, top = (means[0] - zoom * means[2]) / size_a[:, 1], (means[1] - zoom * means[3]) / size_a[:, 0]
    wide, high = zoom * size_b[:, 1] / size_a[:, 1], zoom * size_b[:, 0] / size_a[:, 0]
    turned = flip[every, best] == 1
    lay = np.column_stack([np.where(turned, left + wide, left), np.where(turned, -wide, wide), top, high])
    return agreeing, lay.astype(np.float32)


def _apart(values: np.ndarray) -> np.ndarray:
    return values[:, None, :] - values[:, :, None]


def _refine(a: Sketches, b: Sketches, lay: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Move, stretch and brighten one thumbnail until it lies on the other as well as it can, then compare."""
    overlap, best_correlation = np.zeros(len(a), np.float32), np.full(len(a), -1, np.float32)
    difference = np.full(len(a), np.inf, np.float32)
    best, rows, seen_a, seen_b = lay.copy(), np.arange(len(a)), _Thumbnails(a), _Thumbnails(b)
    for turn in range(_ROUNDS + 1):
        u, v, pa, pb = _laid(seen_a, seen_b, lay)
        gain, offset, correlation = _fit(pa, pb)
        better = correlation > best_correlation[rows]
        best[rows[better]], best_correlation[rows[better]] = lay[better], correlation[better]
        if turn < _ROUNDS:
            lay = lay + _step(pa, pb, lay, u, v, gain, offset)
        if turn == 1:
            hopeful = np.flatnonzero(best_correlation[rows] > _HOPELESS)
            rows, lay, seen_a, seen_b = rows[hopeful], lay[hopeful], seen_a.take(hopeful), seen_b.take(hopeful)
            if not len(rows):
                return overlap, best_correlation, difference
    u, v, pa, pb = _laid(seen_a, seen_b, best[rows])
    difference[rows] = np.minimum(_largest_difference(pa, pb), _largest_difference(pb, pa))
    share_b = (u[:, -1] - u[:, 0]) * (v[:, -1] - v[:, 0]) * (_GRID / (_GRID - 1)) ** 2
    share_a = share_b * np.abs(best[rows, 1] * best[rows, 3])
    size_a, size_b = a.sizes[rows].astype(np.float32), b.sizes[rows].astype(np.float32)
    wide, high = np.abs(best[rows, 1]) * size_a[:, 1] / size_b[:, 1], np.abs(best[rows, 3]) * size_a[:, 0] / size_b[:, 0]
    plausible = (np.minimum(share_a, share_b) >= _COVERED) & (np.abs(np.log(wide / np.maximum(high, 1e-3) + 1e-9)) <= _STRETCH)
    overlap[rows] = np.where(plausible, np.maximum(share_a, share_b), 0)
    return overlap, best_correlation, difference


def _laid(seen_a: _Thumbnails, seen_b: _Thumbnails, lay: np.ndarray) -> tuple[np.ndarray, ...]:
    """Places across and down b, and what a and b show there, equally sharp."""
    u, v = _overlap_grid(lay)
    across, down = lay[:, :1] + lay[:, 1:2] * u, lay[:, 2:3] + lay[:, 3:] * v
    # How many pixels of a's thumbnail one of b's covers: if it is more than one, a is the sharper, and is looked at through a wider blur.
    zoom = np.abs(lay[:, 1] * seen_a.columns / seen_b.columns * lay[:, 3] * seen_a.rows / seen_b.rows)
    own = _SAMPLING_BLUR**2 + _OWN_BLUR**2
    wider_a, wider_b = np.clip(zoom - 1, 0, 2) * own, np.clip(1 / np.maximum(zoom, 0.1) - 1, 0, 2) * own
    return u, v, seen_a.at(across, down, _SAMPLING_BLUR**2 + wider_a), seen_b.at(u, v, _SAMPLING_BLUR**2 + wider_b)


def _overlap_grid(lay: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Places across and down b where it lies on a."""
    out = []
    for start, step in ((lay[:, 0], lay[:, 1]), (lay[:, 2], lay[:, 3])):
        step = np.where(np.abs(step) < 0.1, 0.1, step)
        ends = np.sort(np.stack([-start / step, (1 - start) / step]), 0)
        low, high = np.clip(ends[0], 0, 0.9), np.clip(ends[1], 0, 1)
        high = np.maximum(high, low + 0.05)
        out.append(low[:, None] + (high - low)[:, None] * ((np.arange(_GRID, dtype=np.float32) + 0.5) / _GRID))
    return out[0], out[1]


def _fit(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Gain and offset that make y of x, and their correlation."""
    mean_x, mean_y = x.mean((1, 2)), y.mean((1, 2))
    dx, dy = x - mean_x[:, None, None], y - mean_y[:, None, None]
    xx, yy, xy = (dx * dx).sum((1, 2)), (dy * dy).sum((1, 2)), (dx * dy).sum((1, 2))
    gain = xy / np.maximum(xx, 1e-6)
    return gain, mean_y - gain * mean_x, xy / np.maximum(np.sqrt(xx * yy), 1e-6)


def _step(
    pa: np.ndarray, pb: np.ndarray, lay: np.ndarray, u: np.ndarray, v: np.ndarray, gain: np.ndarray, offset: np.ndarray
) -> np.ndarray:
    """One step of Gauss and Newton towards the lay with the least difference."""
    # One step along u of b moves lay[1] steps along u of a.
    wide, high = (np.where(np.abs(side) < 0.1, 0.1, side) for side in (lay[:, 1], lay[:, 3]))
    du = np.gradient(pa, axis=2) * (gain / ((u[:, 1] - u[:, 0]) * wide))[:, None, None]
    dv = np.gradient(pa, axis=1) * (gain / ((v[:, 1] - v[:, 0]) * high))[:, None, None]
    columns = [du, du * u[:, None, :], dv, dv * v[:, :, None], pa, np.ones_like(pa)]
    jacobian = np.stack(columns, 1).reshape(len(lay), 6, -1)
    residual = (pb - gain[:, None, None] * pa - offset[:, None, None]).reshape(len(lay), -1, 1)
    normal = (jacobian @ jacobian.transpose(0, 2, 1)).astype(np.float64)
    diagonal = np.einsum("pii->pi", normal)
    diagonal += 1e-3 * diagonal + 1e-6
    step = np.linalg.solve(normal, (jacobian @ residual).astype(np.float64))[:, :4, 0]
    return np.clip(step, -_LARGEST_STEP, _LARGEST_STEP).astype(np.float32)


def _largest_difference(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Of y from what x would be in another light; where a picture was brightened until parts are white, a curve fits and no line does."""
    flat = x.reshape(len(x), -1)
    flat = (flat - flat.mean(1, keepdims=True)) / np.maximum(flat.std(1, keepdims=True), 1e-3)
    basis = np.stack([np.ones_like(flat), flat, flat**2, flat**3], 1)
    normal = (basis @ basis.transpose(0, 2, 1)).astype(np.float64) + 1e-2 * np.eye(4)
    weights = np.linalg.solve(normal, (basis @ y.reshape(len(y), -1, 1)).astype(np.float64))
    residual = y - (weights.transpose(0, 2, 1).astype(np.float32) @ basis).reshape(y.shape)
    # A cut picture's blur knows nothing of what was cut off, so at the edge it differs from the whole one's.
    inner = residual[:, _EDGE:-_EDGE, _EDGE:-_EDGE]
    places = np.arange(inner.shape[1])
    near = (np.abs(places[:, None] - places) <= _BOX // 2).astype(np.float32)[_BOX // 2 : -(_BOX // 2)] / _BOX
    return np.abs(near @ inner @ near.T).max((1, 2)) / np.maximum(y.std((1, 2)), 1e-3)


class _Thumbnails:
    """Thumbnails of any shapes, looked up between their pixels."""

    def __init__(self, sketches: Sketches) -> None:
        height, width = sketches.sizes[:, 0].astype(np.float32), sketches.sizes[:, 1].astype(np.float32)
        self.rows, self.columns = thumbnail_shape(height, width)
        self._pixels = np.zeros((len(sketches), int(self.rows.max()), int(self.columns.max())), np.float32)
        for pixels, flat, rows, columns in zip(self._pixels, sketches.thumbnails, self.rows, self.columns, strict=True):
            pixels[:rows, :columns] = flat[: rows * columns].reshape(rows, columns)

    def take(self, rows: np.ndarray) -> _Thumbnails:
        """Those of some rows."""
        some = copy.copy(self)
        some.rows, some.columns, some._pixels = self.rows[rows], self.columns[rows], self._pixels[rows]
        return some

    def at(self, u: np.ndarray, v: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """P×V×U values at columns u (P×U) and rows v (P×V), both from 0 to 1, through a Gaussian of that variance in pixels."""
        across = _window(u * self.columns[:, None] - 0.5, self.columns, self._pixels.shape[2], variance)
        down = _window(v * self.rows[:, None] - 0.5, self.rows, self._pixels.shape[1], variance)
        return down @ self._pixels @ across.transpose(0, 2, 1)


def _window(places: np.ndarray, lengths: np.ndarray, longest: int, variance: np.ndarray) -> np.ndarray:
    """P×places×pixels weights that sum to one, none beyond a picture's edge."""
    pixels = np.arange(longest, dtype=np.float32)
    weights = np.exp((pixels - places[:, :, None].astype(np.float32)) ** 2 * (-0.5 / variance[:, None, None]).astype(np.float32))
    weights *= pixels < lengths[:, None, None]
    return weights / np.maximum(weights.sum(2, keepdims=True), 1e-9)
