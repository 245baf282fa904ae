"""Reads of a thread over the connection of an event loop."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from reprieve.stores.redis.connection import Connection
from reprieve.stores.redis.node import Argument


class LoopReader:
    """Lets a thread read over the connection of the event loop that has started it."""

    def __init__(self, connection: Connection) -> None:
        """Take the connection of the running loop."""
        self._connection = connection
        self._loop = asyncio.get_running_loop()

    def read(self, name: str, tag: str, *arguments: Argument) -> Any:  # noqa: ANN401 - as the script replies
        """Run a script that only reads."""
        return self._wait(self._connection.run(name, tag, *arguments))

    def command(self, name: str, key: str, *arguments: Argument) -> Any:  # noqa: ANN401 - as the server replies
        """Run a command that only reads."""
        return self._wait(self._connection.command(name, key, *arguments))

    def _wait(self, work: Coroutine[Any, Any, Any]) -> Any:  # noqa: ANN401 - as above
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()
