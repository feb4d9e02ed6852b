"""Several records at a time, in order, and only a few of them under way."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

_Item = TypeVar("_Item")
_Found = TypeVar("_Found")
# A thread that is done finds the next item waiting, however long the first one in line takes.
_AHEAD = 8


def in_order(function: Callable[[_Item], _Found], items: Iterable[_Item], workers: int = 0) -> Iterator[_Found]:
    """What the function makes of each item, in their order, by several threads.

    An executor's own `map` takes all items at once and keeps a note of each, which of a large dataset is more than the records under way.

    >>> list(in_order(abs, [-3, 2, -1], workers=2))
    [3, 2, 1]

    Args:
        workers: threads; 0 for one per core.
    """
    workers = workers or os.cpu_count() or 1
    waiting: deque[Future[_Found]] = deque()
    with ThreadPoolExecutor(workers) as pool:
        try:
            for item in items:
                waiting.append(pool.submit(function, item))
                if len(waiting) >= _AHEAD * workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BaseException:
            # The first that fails ends it; there is no use in beginning the rest.
            pool.shutdown(cancel_futures=True)
            raise
