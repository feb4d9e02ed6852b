from __future__ import annotations

import asyncio
import threading
import time

import pytest

from halfmask.errors import HalfmaskError
from halfmask.serve.answers import Refused
from halfmask.serve.working import Desk


def test_work_is_done_one_piece_at_a_time() -> None:
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

    assert asyncio.run(go()) == [1] * 5


def test_too_many_are_sent_away() -> None:
    gate = threading.Event()

    async def go() -> list[object]:
        desk = Desk(2)
        waiting = [asyncio.ensure_future(desk.do(gate.wait)) for _ in range(6)]
        await asyncio.sleep(0.05)
        gate.set()
        return list(await asyncio.gather(*waiting, return_exceptions=True))

    found = asyncio.run(go())
    refused = [one for one in found if isinstance(one, Refused)]
    assert found.count(True) == 6 - len(refused) and len(refused) >= 3 and refused[0].status == 503


def test_errors_come_back() -> None:
    def work() -> None:
        raise HalfmaskError("no")

    async def go() -> int:
        desk = Desk()
        with pytest.raises(HalfmaskError, match="no"):
            await desk.do(work)
        return await desk.do(lambda: 7)

    assert asyncio.run(go()) == 7


def test_whoever_leaves_does_not_let_the_next_in_early() -> None:
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

    asyncio.run(go())
    assert order == ["first", "second"]


def test_work_does_not_keep_the_process_alive() -> None:
    async def go() -> bool:
        return await Desk().do(lambda: threading.current_thread().daemon)

    assert asyncio.run(go())
