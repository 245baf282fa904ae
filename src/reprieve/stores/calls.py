"""The calls of a store that are under way, so that closing it can wait for them."""

import asyncio
import threading

from reprieve.errors import StoreClosed

MAX_CLOSE_WAIT_SECONDS = 5.0
"""How long closing a store waits for calls under way; a server may be silent for longer."""


class Calls:
    """Counts calls under way in any thread, each a `with` block, until `close` lets no more begin."""

    def __init__(self) -> None:
        """Let calls begin."""
        self._lock = threading.Lock()
        self._all_ended = threading.Condition(self._lock)
        self.under_way = 0
        """How many calls have begun and not ended."""
        self._is_closed = False

    def require_open(self) -> None:
        """Raise `StoreClosed` after `close`."""
        if self._is_closed:
            raise StoreClosed

    def begin(self) -> None:
        """Begin a call; raise `StoreClosed` after `close`."""
        with self._lock:
            self.require_open()
            self.under_way += 1

    def end(self) -> None:
        """End a call that was begun."""
        with self._lock:
            self.under_way -= 1
            if self._is_closed and not self.under_way:
                self._all_ended.notify_all()

    __enter__ = begin

    def __exit__(self, *_: object) -> None:
        """End the call of a `with` block."""
        self.end()

    def close(self) -> bool:
        """Let no more calls begin; return False if that was so already."""
        with self._lock:
            was_closed, self._is_closed = self._is_closed, True
        return not was_closed

    async def finish(self) -> None:
        """Wait until every call has ended, at most `MAX_CLOSE_WAIT_SECONDS`."""
        if self.under_way:
            await asyncio.to_thread(self._wait_for_end)

    def _wait_for_end(self) -> None:
        with self._lock:
            self._all_ended.wait_for(lambda: not self.under_way, MAX_CLOSE_WAIT_SECONDS)
