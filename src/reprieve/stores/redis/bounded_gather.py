"""Concurrent calls, at most so many at a time."""

import asyncio
import itertools
from collections.abc import Awaitable, Iterable
from typing import TypeVar

T = TypeVar("T")

MAX_CONCURRENT_CALLS = 32
"""Half of the connections that a client keeps."""


async def bounded_gather(calls: Iterable[Awaitable[T]]) -> list[T]:
    """Await calls concurrently; return their results in order.

    If one fails, its error is raised after all calls of the same batch have ended: none runs on beside its own repeat.
    """
    results: list[T] = []
    rest = iter(calls)
    while batch := list(itertools.islice(rest, MAX_CONCURRENT_CALLS)):
        for result in await asyncio.gather(*batch, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result
            results.append(result)
    return results
