"""A node: one server, and the connections of one event loop to it.

The pool of redis-py costs a third of a small call, and its client of a Cluster loses open connections when a server
dies under several calls; see decision 26.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from redis import exceptions as redis_errors

from reprieve.stores.redis.error_mapping import DRIVER_ERRORS

Argument = bytes | str | int | float

MAX_CONNECTIONS = 64
"""Connections of one event loop to one server, besides those of listeners."""

MAX_REPLY_SECONDS = 10.0
"""How long a call may take; longer than the listener lets the server block."""


def node_name(host: str, port: int) -> str:
    """Return the name of the server at an address."""
    return f"{host}:{port}"


class Node:
    """One server: connections are opened when they are needed, and have one call at a time."""

    def __init__(
        self,
        client: Any,  # noqa: ANN401 - a client of redis-py
        name: str,
        on_error: Callable[[Exception], None] | None = None,
        *,
        max_reply_seconds: float = MAX_REPLY_SECONDS,
    ) -> None:
        """Take the client that makes connections and reads replies, and what is called with errors of the server.

        `on_error` may raise a clearer error.
        """
        self.name = name
        self._client = client
        self._on_error = on_error
        self._max_reply_seconds = max_reply_seconds
        self._idle: list[Any] = []
        self._busy: set[Any] = set()
        self._free = asyncio.Semaphore(MAX_CONNECTIONS)
        self._is_closed = False

    @property
    def is_busy(self) -> bool:
        """Whether calls are under way."""
        return bool(self._busy)

    async def execute(self, *command: Argument) -> Any:  # noqa: ANN401 - as the server replies
        """Run a command; return its reply as redis-py reads it."""
        async with self._free:
            return (await self._call((command,)))[0]

    async def execute_together(self, *commands: Sequence[Argument]) -> list[Any]:
        """Run commands on one connection in one round trip; return their replies. Raises the first error of them."""
        async with self._free:
            return await self._call(commands)

    async def block(self, *command: Argument) -> Any:  # noqa: ANN401 - as above
        """Run a command for which the server waits, on a connection that `MAX_CONNECTIONS` does not count."""
        return (await self._call((command,)))[0]

    async def _call(self, commands: Sequence[Sequence[Argument]]) -> list[Any]:
        self._require_open()
        connection = self._idle.pop() if self._idle else self._client.connection_pool.make_connection()
        self._busy.add(connection)
        try:
            replies = await self._exchange(connection, commands)
        except BaseException as error:
            # A reply may be left to be read, which the next call would take for its own.
            await connection.disconnect(nowait=True)
            if isinstance(error, redis_errors.ConnectionError | redis_errors.TimeoutError):
                # The server went away, and with it the other end of every idle connection.
                await self._disconnect_idle()
            if isinstance(error, DRIVER_ERRORS) and self._on_error is not None:
                self._on_error(error)
            raise
        finally:
            self._busy.discard(connection)
        if self._is_closed:
            await connection.disconnect(nowait=True)
        else:
            self._idle.append(connection)
        for reply in replies:
            if isinstance(reply, redis_errors.ResponseError):
                if self._on_error is not None:
                    self._on_error(reply)
                raise reply
        return replies

    async def _exchange(self, connection: Any, commands: Sequence[Sequence[Argument]]) -> list[Any]:  # noqa: ANN401 - of redis-py
        """Send commands; return their replies, some of which may be errors."""
        try:
            # One bound on the whole call: redis-py would start a task for each send in order to bound it.
            async with asyncio.timeout(self._max_reply_seconds):
                if not connection.is_connected:
                    await connection.connect()
                    # The server may have been deposed, or the store closed, meanwhile.
                    self._require_open()
                packed = (
                    connection.pack_command(*commands[0]) if len(commands) == 1 else connection.pack_commands(commands)
                )
                await connection.send_packed_command(packed)
                return [await self._read(connection, str(command[0])) for command in commands]
        except TimeoutError:
            message = f"{self.name} did not reply within {self._max_reply_seconds:g} seconds"
            raise redis_errors.TimeoutError(message) from None

    async def _read(self, connection: Any, name: str) -> Any:  # noqa: ANN401 - as above
        try:
            return await self._client.parse_response(connection, name)
        except redis_errors.ResponseError as error:
            return error

    def _require_open(self) -> None:
        if self._is_closed:
            message = f"the connections to {self.name} are closed"
            raise redis_errors.ConnectionError(message)

    async def _disconnect_idle(self) -> None:
        """Close the connections that no call uses; one at a time, so that a cancel forgets none of them."""
        while self._idle:
            await self._idle.pop().disconnect(nowait=True)

    async def leave(self) -> None:
        """Let no more calls begin; close each connection as soon as no call uses it."""
        self._is_closed = True
        await self._disconnect_idle()

    async def close(self) -> None:
        """Close all connections, and wait until they are closed; calls under way fail."""
        self._is_closed = True
        # In tasks of their own, which end also if the caller is cancelled.
        closing = [asyncio.create_task(_disconnect(connection)) for connection in (*self._idle, *self._busy)]
        self._idle.clear()
        if closing:
            await asyncio.wait(closing)


async def _disconnect(connection: Any) -> None:  # noqa: ANN401 - as above
    with contextlib.suppress(*DRIVER_ERRORS):
        await connection.disconnect()
