"""Signs of life between the processes of a run."""

from __future__ import annotations

import threading

import torch.distributed as dist


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
