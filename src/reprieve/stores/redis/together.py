"""Calls that are made at once."""

import asyncio
import itertools
from collections.abc import Awaitable, Iterable
from typing import TypeVar

T = TypeVar("T")

AT_ONCE = 32
"""Calls under way at the most: half of the connections that a client keeps."""


async def together(calls: Iterable[Awaitable[T]]) -> list[T]:
    """Make calls at once. One that fails is told when all under way have ended: none goes on beside its own repeat."""
    answers: list[T] = []
    rest = iter(calls)
    while some := list(itertools.islice(rest, AT_ONCE)):
        for answer in await asyncio.gather(*some, return_exceptions=True):
            if isinstance(answer, BaseException):
                raise answer
            answers.append(answer)
    return answers
