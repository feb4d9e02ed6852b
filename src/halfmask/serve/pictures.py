"""A picture that somebody sends: held in memory, bounded, never stored.

It comes as the body of the request, read piece by piece and given up as soon as it is too large, whatever length was announced. How many
pixels it would have is read from its header before any of them is made, so that a small file cannot become a huge picture.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator

import numpy as np
from PIL import Image, UnidentifiedImageError
from starlette.requests import ClientDisconnect

from halfmask.data.images import decode_image
from halfmask.errors import HalfmaskError
from halfmask.serve.answers import Refused

LARGEST_BYTES, LARGEST_PIXELS, SMALLEST_SIDE = 16 * 2**20, 25_000_000, 8
FORMATS = ("JPEG", "PNG", "WEBP", "BMP")
_SECONDS = 30.0
_TOO_LARGE = Refused(413, f"the picture is larger than {LARGEST_BYTES // 2**20} MiB: send a smaller one")


async def receive(announced: str | None, body: AsyncIterator[bytes]) -> bytes:
    """The body of a request, or a refusal: before reading it where it says itself how long it is, and at the latest when it gets too long.

    Args:
        announced: the header Content-Length.
    """
    if announced is not None and (
        not (announced.isascii() and announced.isdecimal()) or len(announced) > 12 or int(announced) > LARGEST_BYTES
    ):
        raise _TOO_LARGE
    try:
        return await asyncio.wait_for(_gather(body), _SECONDS)
    except ClientDisconnect:
        raise Refused(400, "the picture broke off") from None
    except asyncio.TimeoutError:
        raise Refused(408, f"the picture did not arrive within {_SECONDS:g} seconds") from None


async def _gather(body: AsyncIterator[bytes]) -> bytes:
    held = bytearray()
    async for piece in body:
        held += piece
        if len(held) > LARGEST_BYTES:
            raise _TOO_LARGE
    return bytes(held)


def decode(data: bytes) -> np.ndarray:
    """The picture's pixels (H×W×3 bytes, red first), as `halfmask predict` reads them from a file."""
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as header:
            width, height = header.size
    except Image.DecompressionBombError:
        width = height = LARGEST_PIXELS
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError, OverflowError, MemoryError):
        raise Refused(415, f"this is no picture that can be read: expected {', '.join(FORMATS[:-1])} or {FORMATS[-1]}") from None
    if width * height > LARGEST_PIXELS:
        raise Refused(413, f"the picture has more than {LARGEST_PIXELS // 10**6} million pixels: send a smaller one")
    if min(width, height) < SMALLEST_SIDE:
        raise Refused(422, f"the picture is {width}×{height}: expected at least {SMALLEST_SIDE} pixels each way")
    try:
        return decode_image(data, "the picture")
    except HalfmaskError as error:
        raise Refused(415, str(error)) from None
