"""Connections for the scripts of one event loop, without the pool of redis-py, which cost a third of a small call."""

from typing import Any

from redis import exceptions as redis_errors


class ScriptConnections:
    """The connections of one event loop to a single server: opened when they are needed, one call at a time on each."""

    def __init__(self, client: Any) -> None:  # noqa: ANN401 - a client of one of several kinds
        """Take the client whose address and settings they use."""
        self._client = client
        self._idle: list[Any] = []
        self._busy: set[Any] = set()

    async def execute(self, *parts: bytes | str | float) -> Any:  # noqa: ANN401 - as the server replies
        """Run a command on an idle connection, or on a new one."""
        connection = self._idle.pop() if self._idle else self._client.connection_pool.make_connection()
        self._busy.add(connection)
        try:
            await connection.send_command(*parts)
            reply = await connection.read_response()
        except redis_errors.ResponseError:
            self._idle.append(connection)
            raise
        except BaseException as error:
            # A reply may be left to be read, which the next call would take for its own.
            await connection.disconnect(nowait=True)
            if isinstance(error, redis_errors.ConnectionError | redis_errors.TimeoutError):
                # The server went away, and with it the other end of every idle connection.
                await self.disconnect_idle()
            raise
        finally:
            self._busy.discard(connection)
        self._idle.append(connection)
        return reply

    async def disconnect_idle(self) -> None:
        """Close the connections that no call uses."""
        idle, self._idle = self._idle, []
        for connection in idle:
            await connection.disconnect(nowait=True)

    async def close(self) -> None:
        """Close all connections."""
        await self.disconnect_idle()
        for connection in list(self._busy):
            await connection.disconnect(nowait=True)
