"""What an enqueue of many calls needs: the batch that is being stored, and what was stored before an error."""

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from copy import copy
from typing import Any, Self

from reprieve.errors import StoreError
from reprieve.handle import JobHandle

TURNS_TO_SEND = 3
"""Turns of the event loop that a batch needs until the store's connection has it."""


class Sending:
    """The batch that is being stored: at most one, so that whatever fails, what was stored before it is known."""

    def __init__(self, handles: list[JobHandle[Any]]) -> None:
        """Take the list that the handles of stored jobs are added to."""
        self._handles = handles
        self._batch: asyncio.Task[list[JobHandle[Any]]] | None = None

    async def __aenter__(self) -> Self:
        """Begin without a batch."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Wait until the last batch is stored."""
        await self.finish()

    async def start(self, batch: Coroutine[Any, Any, list[JobHandle[Any]]]) -> None:
        """Begin to store a batch."""
        self._batch = asyncio.create_task(batch)
        for _ in range(TURNS_TO_SEND):
            await asyncio.sleep(0)

    async def finish(self) -> None:
        """Wait until the batch is stored, if there is one."""
        if self._batch is not None:
            batch, self._batch = self._batch, None
            self._handles += await batch


@contextmanager
def attached(handles: list[JobHandle[Any]]) -> Iterator[None]:
    """Attach to an exception what was stored before it."""
    try:
        yield
    except BaseException as error:
        # Callers that shared one trip to the store share its error, and have different handles.
        own = copy(error) if isinstance(error, StoreError) else error
        own.enqueued = handles  # type: ignore[attr-defined]  # it may be an exception of the caller's
        if own is error:
            raise
        raise own.with_traceback(error.__traceback__) from error.__cause__
