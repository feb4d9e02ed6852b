"""What is public: one file per map ψ."""

from __future__ import annotations

from typing import Any

from halfmask.errors import HalfmaskError, unknown_name
from halfmask.views.base import ImageView, Seen, View
from halfmask.views.blur import Blur
from halfmask.views.constant import Constant
from halfmask.views.downsample import Downsample
from halfmask.views.superpixels import Superpixels
from halfmask.views.tokens import Framewise, Tokens
from halfmask.views.trial import check_view

VIEWS: dict[str, type[View]] = {
    "blur": Blur,
    "constant": Constant,
    "downsample": Downsample,
    "superpixels": Superpixels,
    "tokens": Tokens,
}


def make_view(name: str, options: dict[str, Any] | None = None) -> View:
    """Build a view from its name and options in a recipe; one that loses next to nothing of an image is refused."""
    if name not in VIEWS:
        raise unknown_name("view", name, VIEWS)
    try:
        view = VIEWS[name](**(options or {}))
    except TypeError as error:
        raise HalfmaskError(f"view '{name}' does not take {options}: {error}") from None
    if isinstance(view, ImageView):
        check_view(view)
    return view


__all__ = [
    "VIEWS",
    "Blur",
    "Constant",
    "Downsample",
    "Framewise",
    "ImageView",
    "Seen",
    "Superpixels",
    "Tokens",
    "View",
    "check_view",
    "make_view",
]
