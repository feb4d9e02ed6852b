"""Tokens of a clip: nothing of a protected pixel is in what is public, and every token that one has a part in is in the rest."""

from __future__ import annotations

import numpy as np
import pytest

from halfmask.data.records import REST, VIEW, Records
from halfmask.data.tables import Arrays
from halfmask.data.viewing import look, with_view
from halfmask.errors import HalfmaskError
from halfmask.views import Blur, Framewise, Tokens
from halfmask.views.tokens import EDGES, FILL

pytestmark = pytest.mark.usefixtures("fresh_home")
FRAMES, SIDE = 4, 32
GRID = (2, 8, 8)


def clip_and_mask(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    hidden = np.zeros((FRAMES, SIDE, SIDE), bool)
    hidden[:, 8:22, 10:] = True
    hidden[2, 0:3, 0:3] = True
    return rng.integers(0, 256, (FRAMES, 3, SIDE, SIDE), dtype=np.uint8), hidden


def patches(place: tuple[int, int, int]) -> tuple[slice, slice, slice]:
    """The pixels of a token: windows of 3×7×7, centred on every second frame and every fourth pixel."""
    centres = (2 * place[0], 4 * place[1], 4 * place[2])
    return tuple(slice(max(0, c - r), c + r + 1) for c, r in zip(centres, (1, 3, 3), strict=True))  # type: ignore[return-value]


@pytest.mark.parametrize("edges", EDGES)
def test_what_is_public_does_not_change_with_protected_pixels(edges: str) -> None:
    clip, hidden = clip_and_mask()
    other = np.where(hidden[:, None], np.random.default_rng(9).integers(0, 256, clip.shape, dtype=np.uint8), clip)
    assert (clip != other).any()
    seen, seen_of_other = (Tokens(edges).of({"clip": one, "hidden": hidden}).public for one in (clip, other))
    assert seen.keys() == {"clip", "tokens"}
    assert all(np.array_equal(seen[name], seen_of_other[name]) for name in seen)
    assert (seen["clip"].transpose(0, 2, 3, 1)[hidden] == FILL).all()


def test_a_token_is_public_where_its_whole_patch_is() -> None:
    clip, hidden = clip_and_mask()
    seen = Tokens().of({"clip": clip, "hidden": hidden})
    assert seen.rest is not None and seen.public["tokens"].shape == GRID
    for place in np.ndindex(GRID):
        touched = bool(hidden[patches(place)].any())
        assert bool(seen.public["tokens"][place]) == (not touched)
        assert bool(seen.rest["tokens"][place]) == touched
    assert seen.public["tokens"].any() and seen.rest["tokens"].any()


def test_cleared_edges_are_public_without_what_is_protected_and_private_with_it() -> None:
    clip, hidden = clip_and_mask()
    seen = Tokens("cleared").of({"clip": clip, "hidden": hidden})
    assert seen.rest is not None
    for place in np.ndindex(GRID):
        window = hidden[patches(place)]
        assert bool(seen.public["tokens"][place]) == (not window.all())
        assert bool(seen.rest["tokens"][place]) == bool(window.any())
    assert (seen.public["tokens"] & seen.rest["tokens"]).any()


@pytest.mark.parametrize(("share", "public", "rest"), [(0, True, False), (1, False, True)])
def test_a_clip_may_be_public_or_protected_as_a_whole(share: int, public: bool, rest: bool) -> None:
    clip, hidden = clip_and_mask()
    seen = Tokens().of({"clip": clip, "hidden": np.full_like(hidden, bool(share))})
    assert seen.rest is not None
    assert (seen.public["tokens"] == public).all() and (seen.rest["tokens"] == rest).all()


def test_a_mask_of_another_size_is_refused() -> None:
    clip, hidden = clip_and_mask()
    with pytest.raises(HalfmaskError, match="the mask of a clip is 3×32×32 and its frames are 4×32×32"):
        Tokens().of({"clip": clip, "hidden": hidden[:3]})
    with pytest.raises(HalfmaskError, match="edges"):
        Tokens("blurred")


def records(count: int = 3) -> Records:
    clips, masks = zip(*(clip_and_mask(seed) for seed in range(count)), strict=True)
    return Records(
        private=Arrays({"clip": np.stack(clips), "tokens": np.broadcast_to(True, (count, *GRID))}),
        targets=Arrays({"label": np.arange(count)}),
        truth=Arrays({"hidden": np.stack(masks)}),
        units={},
        key="clips",
    )


def test_the_rest_is_the_clip_as_it_is_and_not_stored_twice() -> None:
    people = records()
    left = look(people, Tokens(), 0).rest
    assert left is not None and left.keys() == {"tokens"}, "what a view returns is what is stored"
    seen = with_view(people, Tokens())
    assert seen.shown == REST
    rest, public = seen.batch(np.arange(3), REST), seen.batch(np.arange(3), VIEW)
    assert rest.keys() == public.keys() == {"clip", "tokens", "label"}
    assert np.array_equal(rest["clip"], people.private.rows(np.arange(3))["clip"])
    assert not np.array_equal(public["clip"], rest["clip"])
    assert np.array_equal(rest["tokens"], ~public["tokens"].numpy())
    # Chosen, they stay together.
    some = seen.take(np.array([2, 0])).batch(np.arange(2), REST)
    assert np.array_equal(some["clip"], rest["clip"][[2, 0]]) and np.array_equal(some["tokens"], rest["tokens"][[2, 0]])


def test_without_a_division_the_private_half_is_shown_the_whole_clip() -> None:
    seen = with_view(records(), Tokens(divides=False))
    assert seen.rest is None and seen.shown == "private"


def test_views_of_pictures_are_of_each_frame_by_itself() -> None:
    clip, _ = clip_and_mask()
    seen = Framewise(Blur(5, 2.0)).of({"clip": clip, "tokens": np.ones(GRID, bool)}).public
    frame = Blur(5, 2.0)(np.ascontiguousarray(clip[1].transpose(1, 2, 0))).transpose(2, 0, 1)
    assert np.array_equal(seen["clip"][1], frame) and seen["tokens"].all()


def test_the_certificate_says_which_tokens_are_public() -> None:
    assert "straddle the border are private" in Tokens().describe()
    said = Tokens("cleared", protects="everything but the person").describe()
    assert "cleared of them" in said and "everything but the person removed before any patch is formed" in said
