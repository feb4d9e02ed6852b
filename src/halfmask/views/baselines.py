"""What people are customarily hidden by without any promise: blurs, coarse pixels and superpixels, at the strengths that are compared.

The strengths are those of Sun, Wang and Liu (2020), counted in pixels of the picture that is hidden: nothing is scaled unless `scale` says
so. Theirs were pictures of 128×64 and more, so that on smaller ones a blur or a cell hides more of a person than it did there. A number of
superpixels is one of the whole picture, whatever its size.

Some of them lose next to nothing of a picture. As what is declared public in training (`make_view`) those are refused; here they are what
a method has to be better than, and are made without asking.
"""

from __future__ import annotations

from halfmask.errors import HalfmaskError, unknown_name
from halfmask.views.base import ImageView
from halfmask.views.blur import Blur
from halfmask.views.downsample import Downsample
from halfmask.views.superpixels import Superpixels

# By name, from the weakest to the strongest: σ of the blur, pixels across a cell, number of segments.
BASELINES: dict[str, tuple[float, ...]] = {
    "blur": (1, 3.8, 4.4, 10, 15),
    "downsample": (5, 8, 11, 14, 50),
    "superpixels": (2000, 800, 20, 14, 1),
}


def baseline(name: str, strength: float, scale: float = 1.0) -> ImageView:
    """The view of a baseline, whether or not it hides anything.

    Args:
        strength: any that the view knows; those that are compared are in `BASELINES`.
        scale: the pictures' height by that of the pictures which the strengths are meant for: 0.5 for pictures half as large. Blurs and
            cells are made as many times smaller.
    """
    if not scale > 0:
        raise HalfmaskError(f"baselines at scale {scale}: expected a number above 0")
    if name == "blur":
        return Blur(sigma=scale * strength)
    if name == "downsample":
        return Downsample(cell=max(2, round(scale * strength)), levels=256)
    if name == "superpixels":
        return Superpixels(segments=int(strength))
    raise unknown_name("baseline", name, BASELINES)
