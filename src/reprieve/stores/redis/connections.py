"""The connections of a store: one for each event loop, one that threads share, one for single calls of a thread."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import redis
from redis import exceptions as redis_errors

from reprieve.errors import StoreClosed
from reprieve.stores.redis.connection import MAX_PAUSE_SECONDS, MIN_PAUSE_SECONDS, Connection
from reprieve.stores.redis.error_mapping import DRIVER_ERRORS, closed_as_broken, is_transient, map_error
from reprieve.stores.redis.node import Argument, node_name
from reprieve.stores.redis.scripts import Script, script
from reprieve.stores.redis.sentinels import Primary
from reprieve.stores.redis.topology import Topology

RETRY_SECONDS = 5.0
"""How long a call is repeated while the server is away."""

Client = redis.Redis | redis.RedisCluster


class Connections:
    """The connections of one store: made when they are needed, closed with it."""

    def __init__(self, topology: Topology, retry_seconds: float = RETRY_SECONDS) -> None:
        """Take where the servers are; nothing is connected yet."""
        self.topology = topology
        self._retry_seconds = retry_seconds
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, Connection] = WeakKeyDictionary()
        self._client: Client | None = None
        self._primary: Primary | None = None
        """The primary that the client of threads is for, if Sentinels have named it."""
        self._connecting = threading.Lock()
        self._single: Any = None
        """The connection for single calls."""
        self._single_name = node_name(*topology.address.hosts[0])
        self._single_call = threading.Lock()
        self._is_closed = False

    def current(self) -> Connection:
        """Return the connection of the running event loop."""
        self.require_open()
        loop = asyncio.get_running_loop()
        connection = self._loops.get(loop)
        if connection is None:
            connection = self._loops[loop] = Connection(self.topology, self._retry_seconds)
        return connection

    async def time(self) -> int:
        """Return the time of the first partition's server, in microseconds since 1970; not repeated on failure."""
        seconds, microseconds = await self.current().time()
        return seconds * 1_000_000 + microseconds

    def read(self, name: str, tag: str, *arguments: Argument) -> Any:  # noqa: ANN401 - as the script replies
        """Run a script that only reads, in a thread."""
        return self._retry(lambda client: _run(client, script(name), tag, arguments))

    def command(self, *parts: Argument) -> Any:  # noqa: ANN401 - as the server replies
        """Run a command that only reads, in a thread."""
        return self._retry(lambda client: client.execute_command(*parts))  # type: ignore[no-untyped-call]

    def run_once(self, name: str, tag: str, *arguments: Argument) -> Any:  # noqa: ANN401 - as above
        """Run a script that writes, in the calling thread, if one round trip does it; else return None.

        That is so on a single server that was checked a short while ago, for one thread at a time: the calls of several
        threads share a round trip of an event loop. A call that fails returns None too: the caller repeats it on an
        event loop, which retries and raises a clear error.
        """
        self.require_open()
        topology, now = self.topology, time.monotonic()
        is_simple = topology.is_admitted and topology.address.mode == "single" and topology.durability != "strict"
        if not is_simple or now >= topology.partitions_until or not topology.is_checked(self._single_name, now):
            return None
        if not self._single_call.acquire(blocking=False):
            return None
        try:
            self.require_open()
            if self._single is None:
                client: Any = self._shared_client()
                self._single = client.connection_pool.make_connection()
            self._single.send_command("EVALSHA", script(name).sha, 1, tag, *arguments)
            return self._single.read_response()
        except BaseException as error:
            # A late reply must not be taken for that of the next call.
            if self._single is not None:
                self._single.disconnect()
            if isinstance(error, DRIVER_ERRORS):
                topology.forget_checks()
                return None
            raise
        finally:
            if self._is_closed and self._single is not None:
                self._single.disconnect()
            self._single_call.release()

    def _retry(self, call: Callable[[Client], Any]) -> Any:  # noqa: ANN401 - as above
        self.require_open()
        give_up_at = time.monotonic() + self._retry_seconds
        pause = MIN_PAUSE_SECONDS
        while True:
            try:
                client, primary = self._shared_client(), self.topology.primary
                found = self._call(client, call)
                if self.topology.primary == primary:
                    return found
                continue  # the server was deposed meanwhile, and may not know the latest
            except DRIVER_ERRORS as error:
                if not is_transient(error) or time.monotonic() >= give_up_at:
                    raise map_error(error, self.topology.address.shown) from error
            time.sleep(pause)  # noqa: TID251 - in a thread of its own
            pause = min(2 * pause, MAX_PAUSE_SECONDS)

    def _call(self, client: Client, call: Callable[[Client], Any]) -> Any:  # noqa: ANN401 - as above
        try:
            with closed_as_broken():
                return call(client)
        finally:
            if self._is_closed:
                # The call may have connected after `close`.
                client.close()

    def _shared_client(self) -> Client:
        """Return the client that all threads share; that of a Cluster connects when it is made."""
        primary = self.topology.primary
        with self._connecting:
            self.require_open()
            if self._client is None or primary != self._primary:
                if self._client is not None:
                    # Threads that wait for a reply of the deposed server get an error, and call the new one.
                    self._client.close()
                self._client = self.topology.address.connect(primary and primary.address)
                self._primary = primary
                if self._is_closed:
                    self._client.close()
            self.require_open()
            return self._client

    async def close(self) -> None:
        """Close the connections; those of other loops close when these run."""
        self._is_closed = True
        connection = self._loops.pop(asyncio.get_running_loop(), None)
        if connection is not None:
            await connection.close()
        for other in list(self._loops.values()):
            other.close_from_outside()
        if self._single is not None:
            # A thread that waits for its reply gets an error, and repeats the call on an event loop.
            self._single.disconnect()
        if self._client is not None:
            self._client.close()

    def require_open(self) -> None:
        """Raise `StoreClosed` if the store was closed."""
        if self._is_closed:
            raise StoreClosed


def _run(client: Client, wanted: Script, tag: str, arguments: tuple[Argument, ...]) -> Any:  # noqa: ANN401 - as the script replies
    try:
        return client.execute_command("EVALSHA", wanted.sha, 1, tag, *arguments)  # type: ignore[no-untyped-call]
    except redis_errors.NoScriptError:
        return client.execute_command("EVAL", wanted.text, 1, tag, *arguments)  # type: ignore[no-untyped-call]
