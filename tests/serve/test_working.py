from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from halfmask.errors import HalfmaskError
from halfmask.privacy.home import private_folder
from halfmask.serve.answers import Refused
from halfmask.serve.working import Desk


def test_work_is_done_one_piece_at_a_time(awaited: Callable[[Any], Any]) -> None:
    running, most = 0, 0

    def work() -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        time.sleep(0.01)
        running -= 1
        return most

    async def go() -> list[int]:
        desk = Desk(8)
        return list(await asyncio.gather(*(desk.do(work) for _ in range(5))))

    assert awaited(go()) == [1] * 5


def test_too_many_are_sent_away(awaited: Callable[[Any], Any]) -> None:
    gate = threading.Event()

    async def go() -> list[object]:
        desk = Desk(2)
        waiting = [asyncio.ensure_future(desk.do(gate.wait)) for _ in range(6)]
        await asyncio.sleep(0.05)
        gate.set()
        return list(await asyncio.gather(*waiting, return_exceptions=True))

    found = awaited(go())
    refused = [one for one in found if isinstance(one, Refused)]
    assert found.count(True) == 6 - len(refused) and len(refused) >= 3 and refused[0].status == 503


def test_errors_come_back(awaited: Callable[[Any], Any]) -> None:
    def work() -> None:
        raise HalfmaskError("no")

    async def go() -> int:
        desk = Desk()
        with pytest.raises(HalfmaskError, match="no"):
            await desk.do(work)
        return await desk.do(lambda: 7)

    assert awaited(go()) == 7


def test_whoever_leaves_does_not_let_the_next_in_early(awaited: Callable[[Any], Any]) -> None:
    gate, order = threading.Event(), []

    def first() -> None:
        gate.wait(5)
        order.append("first")

    async def go() -> None:
        desk = Desk()
        leaving = asyncio.ensure_future(desk.do(first))
        await asyncio.sleep(0.02)
        leaving.cancel()
        following = asyncio.ensure_future(desk.do(lambda: order.append("second")))
        await asyncio.sleep(0.05)
        gate.set()
        await following

    awaited(go())
    assert order == ["first", "second"]


def test_work_does_not_keep_the_process_alive(awaited: Callable[[Any], Any]) -> None:
    async def go() -> bool:
        return await Desk().do(lambda: threading.current_thread().daemon)

    assert awaited(go())


def test_private_storage_is_shut_to_work(fresh_home: Path, awaited: Callable[[Any], Any]) -> None:
    async def go() -> None:
        desk = Desk()
        with pytest.raises(HalfmaskError, match="private data"):
            await desk.do(lambda: private_folder("ledgers"))

    awaited(go())
    assert not fresh_home.exists()
    assert private_folder("ledgers").is_dir()
