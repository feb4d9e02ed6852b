"""One piece of long work at a time, beside the server, which goes on answering."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

from halfmask.privacy.home import shut
from halfmask.serve.answers import Refused

T = TypeVar("T")


class Desk:
    """Does what it is given, one piece after the other, and refuses when too many wait.

    Work is done in threads that do not keep the process alive: whoever presses Ctrl-C need not wait for a calculation. Private storage is
    shut to them.
    """

    def __init__(self, waiting: int = 8):
        self._free = asyncio.Semaphore(1)
        self._most, self._here = waiting, 0

    async def do(self, work: Callable[[], T]) -> T:
        """The work's result, or its error. Whoever stops waiting does not stop the work: the next piece waits for its end."""
        if self._here >= self._most:
            raise Refused(503, "too much is being worked on: try again in a moment")
        self._here += 1
        try:
            await self._free.acquire()
        finally:
            self._here -= 1
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()

        def finish(result: T | None, error: BaseException | None) -> None:
            self._free.release()
            if answer.cancelled():
                return
            if error is None:
                answer.set_result(result)  # type: ignore[arg-type]
            else:
                answer.set_exception(error)

        def run() -> None:
            result, error = None, None
            try:
                with shut():
                    result = work()
            except BaseException as raised:
                error = raised
            # The server may have ended in the meantime, and its loop with it.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(finish, result, error)

        threading.Thread(target=run, daemon=True, name="halfmask serve").start()
        return await answer
