"""Signs of life and notes: nobody waits for a store that no longer answers."""

from __future__ import annotations

import threading
import time

import pytest
import torch.distributed as dist

from halfmask.errors import HalfmaskError
from halfmask.training import pulse
from halfmask.training.pulse import Notes, Pulse, within


class Stopped(dist.HashStore):
    """A store that is with a process which was stopped."""

    def compare_set(self, *_: object) -> bytes:
        threading.Event().wait()
        return b""

    def check(self, *_: object) -> bool:
        threading.Event().wait()
        return False


def test_a_question_has_an_end() -> None:
    begin = time.monotonic()
    assert within(5, lambda: 3) == 3
    with pytest.raises(RuntimeError, match="the store's own"):
        within(5, _fail)
    with pytest.raises(RuntimeError, match="no answer"):
        within(0.1, lambda: threading.Event().wait())
    assert time.monotonic() - begin < 3


def _fail() -> None:
    raise RuntimeError("the store's own")


def test_a_note_is_read_by_the_others() -> None:
    store = dist.HashStore()
    root, first, second = (Notes(store, rank, 3) for rank in range(3))
    assert first.read(0) is None
    second.leave(ValueError("a full disk"))
    root.leave(HalfmaskError("too late: the first note counts"))
    assert second.read(0) is None, "one's own"
    for reader in (root, first):
        found = reader.read(0)
        assert isinstance(found, HalfmaskError) and str(found) == "process 2 of 3: ValueError: a full disk"
    begin = time.monotonic()
    second.wait_for_readers()
    assert time.monotonic() - begin < 1


def test_what_root_refuses_is_said_as_it_stands() -> None:
    store = dist.HashStore()
    Notes(store, 0, 2).leave(HalfmaskError("the budget is spent"))
    assert str(Notes(store, 1, 2).read(0)) == "the budget is spent"


def test_a_note_that_nobody_reads_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulse, "NOTE", 0.3)
    notes, begin = Notes(dist.HashStore(), 1, 2), time.monotonic()
    notes.wait_for_readers()
    assert time.monotonic() - begin < 0.2, "there is none"
    notes.leave(HalfmaskError("nobody is there"))
    notes.wait_for_readers()
    assert 0.2 < time.monotonic() - begin < 3


def test_a_store_that_stopped_keeps_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulse, "NOTE", 0.2)
    notes, begin = Notes(Stopped(), 1, 2), time.monotonic()
    assert notes.read(0, patience=0.2) is None
    notes.leave(HalfmaskError("nobody hears it"))
    notes.wait_for_readers()
    assert time.monotonic() - begin < 3


def test_a_pulse_beats_until_it_is_stopped() -> None:
    beating = Pulse(dist.HashStore(), 1, 0.05)
    first, until = beating.of(1), time.monotonic() + 10
    while beating.of(1) == first:
        assert time.monotonic() < until
        time.sleep(0.02)
    beating.stop()
    last = beating.of(1)
    time.sleep(0.2)
    assert beating.of(1) == last
