"""Signs of life and notes between the processes of a run, through the store where they met.

The store may itself be with a process that was stopped, and then never answers: so every question has an end.
"""

from __future__ import annotations

import contextlib
import pickle
import threading
import time
from collections.abc import Callable
from typing import TypeVar

import torch.distributed as dist

from halfmask.errors import HalfmaskError

T = TypeVar("T")

# A process that breaks off may have left a note, and one that left a note waits for it to be read: so long.
NOTE = 3.0
_REFUSAL, _HEARD = "refusal", "heard"


def within(seconds: float, ask: Callable[[], T]) -> T:
    """An answer of the store, or a RuntimeError, as the store itself raises, where it has none in time."""
    found, failed = list[T](), list[RuntimeError]()

    def asking() -> None:
        try:
            found.append(ask())
        except RuntimeError as error:
            failed.append(error)

    thread = threading.Thread(target=asking, name="halfmask question", daemon=True)
    thread.start()
    thread.join(seconds)
    if not found:
        raise failed[0] if failed else RuntimeError(f"no answer for {seconds:g} s")
    return found[0]


class Pulse:
    """A sign of life, every so often, by a connection of its own: one that waits must not keep it from being felt."""

    def __init__(self, store: dist.Store, rank: int, period: float):
        self.store, self.rank, self.period = store, rank, min(2.0, period)
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._beat(0)
        self._thread = threading.Thread(target=self._beats, name="halfmask pulse", daemon=True)
        self._thread.start()

    def of(self, rank: int) -> bytes:
        """The last sign of a process."""
        with self._lock:
            return bytes(self.store.get(str(rank)))

    def stop(self) -> None:
        """No more signs."""
        self._stopped.set()
        self._thread.join(self.period + 1)

    def _beats(self) -> None:
        count = 0
        while not self._stopped.wait(self.period):
            count += 1
            try:
                self._beat(count)
            except RuntimeError:  # there is nobody any more to feel it
                return

    def _beat(self, count: int) -> None:
        with self._lock:
            self.store.set(str(self.rank), str(count))


class Notes:
    """What a process that refuses something leaves for the others, before it goes. The first one counts.

    Whoever left it waits until it was read, or for a while: where the store is its own, it would take the note with it.
    """

    def __init__(self, store: dist.Store, rank: int, size: int):
        self.store, self.rank, self.size = store, rank, size
        self._left = False

    def leave(self, error: BaseException) -> None:
        """Say why this process goes."""
        kind = "" if isinstance(error, HalfmaskError) else f"{type(error).__name__}: "
        note = pickle.dumps((self.rank, isinstance(error, HalfmaskError), f"{kind}{error}"))
        with contextlib.suppress(RuntimeError):
            within(NOTE, lambda: self.store.compare_set(_REFUSAL, "", note.hex()))
            self._left = True

    def read(self, wait: float, patience: float = NOTE) -> HalfmaskError | None:
        """What another process refused, if it did.

        Args:
            patience: how long the store may take to answer.
        """
        until = time.monotonic() + wait
        while True:
            try:
                note = within(patience, self._found)
            except RuntimeError:  # there is no launcher any more to ask
                return None
            if note:
                rank, ours, words = pickle.loads(note)
                if rank == self.rank:
                    return None
                with contextlib.suppress(RuntimeError):
                    within(NOTE, lambda: self.store.add(_HEARD, 1))
                return HalfmaskError(words if ours and rank == 0 else f"process {rank} of {self.size}: {words}")
            if time.monotonic() >= until:
                return None
            time.sleep(0.05)

    def wait_for_readers(self) -> None:
        """Stay until everybody has read what was left."""
        until = time.monotonic() + NOTE
        with contextlib.suppress(RuntimeError):
            while self._left and time.monotonic() < until and within(NOTE, lambda: self.store.add(_HEARD, 0)) < self.size - 1:
                time.sleep(0.05)

    def _found(self) -> bytes:
        return bytes.fromhex(self.store.get(_REFUSAL).decode()) if self.store.check([_REFUSAL]) else b""
