"""A connection to the server that is closed when the server stays silent for too long."""

from collections.abc import Generator
from contextlib import suppress
from typing import Any, Final, TypeVar

import psycopg

from reprieve.clock import ticks

T = TypeVar("T")

CONNECT_SECONDS: Final = 10
"""Seconds to wait for a server that cannot be reached, and for the claim lock."""

READ_SECONDS: Final = 120
"""Seconds that a statement may take: some count all jobs of a large store."""

WRITE_SECONDS: Final = 30
"""Seconds to wait for a response to a transaction that writes: it reads little once it has the claim lock."""

POLL_MS: Final = 200
"""Milliseconds after which a call that waits for the server checks whether it may wait on."""


class Connection(psycopg.Connection[Any]):
    """A connection that is closed when the server sends nothing for `max_silence_seconds`."""

    max_silence_seconds: float = WRITE_SECONDS
    """Any thread may change it, also while another thread waits on this connection."""

    is_pooled: bool = True
    """Whether a pooler may give each transaction another session of the server, without our settings."""

    def cancel_and_close(self) -> None:
        """Cancel the statement that the server may be running, and close the connection."""
        with suppress(psycopg.Error):
            self.cancel_safe(timeout=1.0)
        self.close()

    def require_response(self, since: float) -> None:
        """Close the connection and raise when the server has been silent since `since` for too long."""
        silence = ticks() - since
        if silence > self.max_silence_seconds:
            self.close()
            message = f"no response within {silence:.0f} s"
            raise psycopg.OperationalError(message)

    def wait(self, gen: Generator[Any, Any, T], *args: Any, **kwargs: Any) -> T:  # noqa: ANN401 - as psycopg's own
        """Wait for the server as psycopg does, but not for longer than `max_silence_seconds`."""
        return super().wait(self._with_timeout(gen), *args, **kwargs)

    def _with_timeout(self, gen: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
        since = ticks()
        try:
            wanted = next(gen)
            while True:
                # While the server is silent, psycopg sends nothing here several times a second.
                received = yield wanted
                if received:
                    since = ticks()
                else:
                    self.require_response(since)
                wanted = gen.send(received)
        except StopIteration as end:
            result: T = end.value
            return result
