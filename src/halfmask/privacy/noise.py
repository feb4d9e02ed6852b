"""Randomness that nobody can predict, and Gaussian noise made from it.

A stream is the keystream of AES in counter mode under a 256-bit key. In production the key comes from the operating system and is
never written down. In the seeded mode, for tests, it is derived from a seed: the same code runs, and the certificate says that
whoever knows the seed can subtract the noise.

Each use has a stream of its own (private coins, noise, …), so that drawing more of one never shifts another. A stream belongs to the
process that opened it: after a fork, parent and child would each go on with the same numbers, and two releases with the same noise
subtract to what the noise was to hide.
"""

from __future__ import annotations

import hashlib
import os

import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from torch import Tensor

from halfmask.errors import HalfmaskError

_AES_BLOCK = 16
_AT_ONCE = 1 << 17


class RandomStream:
    """An endless secret sequence of uniform and Gaussian numbers.

    >>> stream = RandomStream.seeded("noise", seed=1)
    >>> stream.gaussian(3).dtype
    torch.float64
    """

    def __init__(self, key: bytes, source: str):
        self.source = source
        self._process = os.getpid()
        self._cipher = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()

    @classmethod
    def secure(cls, key: bytes | None = None) -> RandomStream:
        """A stream keyed by the operating system's randomness.

        Args:
            key: a `fresh_key` that several processes share, so that all of them draw the same; one of its own if not given.
        """
        return cls(fresh_key() if key is None else key, "aes-256-ctr keyed by the operating system")

    @classmethod
    def seeded(cls, use: str, seed: int, start: int = 0) -> RandomStream:
        """A repeatable stream, for tests only.

        Args:
            use: what it is for; different uses give independent streams.
            start: the step a resumed run starts from, so that noise already released is never replayed on another batch.
        """
        key = hashlib.sha256(f"halfmask/{use}/{seed}/{start}".encode()).digest()
        return cls(key, f"aes-256-ctr keyed by insecure seed {seed} (for tests: the noise can be subtracted)")

    def uniform(self, count: int) -> Tensor:
        """`count` numbers strictly between 0 and 1, 52 random bits each (with 53, the largest would round to 1)."""
        if os.getpid() != self._process:
            raise HalfmaskError(
                f"a random stream opened in process {self._process} was drawn from in its fork {os.getpid()}: both would get the same "
                "noise. Open streams after forking, in the process that uses them"
            )
        raw = bytearray(8 * count + _AES_BLOCK - 1)  # the cipher asks for room to spare
        self._cipher.update_into(bytes(8 * count), raw)
        if not count:
            return torch.empty(0, dtype=torch.float64)
        bits = torch.frombuffer(raw, dtype=torch.int64, count=count)
        return bits.bitwise_right_shift_(12).bitwise_and_(2**52 - 1).double().add_(0.5).mul_(2.0**-52)

    def gaussian(self, count: int, sum_of_four: bool = False) -> Tensor:
        """`count` standard normal numbers in double precision (Box–Muller).

        Args:
            sum_of_four: add four draws and halve them. The gaps between representable results then no longer betray which
                values are possible (Mironov 2012); it costs four times as much.
        """
        if sum_of_four:
            return self.gaussian(4 * count).view(4, count).sum(0).div_(2)
        numbers = torch.empty(count + count % 2, dtype=torch.float64)
        # In pieces that stay in the processor's cache from the cipher to the last product.
        for piece in numbers.split(_AT_ONCE):
            half = len(piece) // 2
            pair = self.uniform(2 * half)
            radius = pair[:half].log_().mul_(-2).sqrt_()
            angle = pair[half:].mul_(2 * torch.pi)
            torch.mul(radius, angle.cos(), out=piece[:half])
            torch.mul(radius, angle.sin_(), out=piece[half:])
        return numbers[:count]


def fresh_key() -> bytes:
    """A key that the operating system draws, for one stream."""
    return os.urandom(32)


def open_stream(use: str, insecure_seed: int | None, start: int = 0, key: bytes | None = None) -> RandomStream:
    """The production stream, under a key that others may have too; or the seeded one if a test asked for it."""
    if insecure_seed is None:
        return RandomStream.secure(key)
    return RandomStream.seeded(use, insecure_seed, start)
