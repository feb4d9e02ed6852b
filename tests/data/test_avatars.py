from __future__ import annotations

import numpy as np

from halfmask.data.avatars import AVATARS, HAIR_STYLES, avatar_of


def test_there_are_many_and_no_two_look_alike() -> None:
    assert len(AVATARS) >= 32
    assert len({(a.skin, a.top, a.bottom, a.hair_style) for a in AVATARS}) == len(AVATARS)
    assert len({a.skin for a in AVATARS}) >= 6 and len({a.hair for a in AVATARS}) >= 6
    assert {a.hair_style for a in AVATARS} == set(HAIR_STYLES)
    assert len({a.top.pattern for a in AVATARS}) >= 5
    assert min(a.build for a in AVATARS) < 0.9 < 1.2 < max(a.build for a in AVATARS)


def test_skins_do_not_go_with_clothes() -> None:
    for skin in {a.skin for a in AVATARS}:
        some = [a for a in AVATARS if a.skin == skin]
        assert len(some) >= 4
        assert len({a.hair_style for a in some}) >= 2 and len({a.top.colour for a in some}) >= 4


def test_a_key_draws_one_for_good_and_keys_draw_all_of_them() -> None:
    places = [AVATARS.index(avatar_of(f"video {number}")) for number in range(3000)]
    assert places[:5] == [AVATARS.index(avatar_of(f"video {number}")) for number in range(5)]
    # Written down: a dataset that is anonymised again must look the same.
    assert [AVATARS.index(avatar_of(key)) for key in ("a", "b", 7)] == [12, 25, 2]
    counts = np.bincount(places, minlength=len(AVATARS))
    # 83 each on average, give or take 9: six deviations.
    assert counts.min() > 28 and counts.max() < 138
