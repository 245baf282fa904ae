"""The connection of one event loop, over which scripts and commands run.

A call whose connection breaks is repeated for a few seconds. Every script that runs a second time changes nothing and
replies as it did the first time, but for limit updates without an entry, which are applied again.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from redis import exceptions as redis_errors

from reprieve.errors import StoreClosed
from reprieve.stores.redis.admission import Admission
from reprieve.stores.redis.bounded_gather import bounded_gather
from reprieve.stores.redis.error_mapping import DRIVER_ERRORS, closed_as_broken, is_transient, map_error
from reprieve.stores.redis.listener import Listener
from reprieve.stores.redis.node import Argument, Node
from reprieve.stores.redis.replica_ack import ReplicaAck
from reprieve.stores.redis.scripts import Script, script
from reprieve.stores.redis.servers import servers_of
from reprieve.stores.redis.tags import partitions_for
from reprieve.stores.redis.topology import CHECK_PARTITIONS_SECONDS, COMPATIBILITY, SCHEMA_VERSION, Topology

MIN_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.02, 0.5
"""The pause before a repeat, at first and at most; it doubles each time."""

_UNCHECKED = frozenset({"heartbeat", "register"})
"""Scripts of a heartbeat, which run on a server that has become unsafe: a session that waits for it must not die."""


class Connection:
    """The connection of one event loop to the servers."""

    def __init__(self, topology: Topology, retry_seconds: float) -> None:
        """Connect with the first call; a call is repeated for `retry_seconds`."""
        self._topology = topology
        self._retry_seconds = retry_seconds
        self._servers = servers_of(topology)
        self._admission = Admission(self._servers, topology)
        is_promoted = topology.address.mode != "single"
        is_strict = topology.durability == "strict"
        self._replica_ack = ReplicaAck(is_promoted=is_promoted) if is_strict else None
        self._listeners: dict[str, Listener] = {}
        self._loop = asyncio.get_running_loop()
        self._refreshing = asyncio.Lock()
        self._is_closed = False
        self._closer = self._loop.create_task(self._close_with_loop())

    async def run(self, name: str, tag: str, *arguments: Argument) -> Any:  # noqa: ANN401 - as the script replies
        """Run a script on a partition."""
        if not self._topology.is_admitted:
            await self._admit()
        wanted = script(name)
        return await self._retry(lambda: self._run(wanted, tag, arguments))

    async def command(self, name: str, key: str, *arguments: Argument) -> Any:  # noqa: ANN401 - as the server replies
        """Run a command on a key."""

        async def run() -> Any:  # noqa: ANN401 - as above
            node = await self._servers.node_of(key)
            return await node.execute(name, key, *arguments)

        return await self._retry(run)

    def listener(self, tag: str) -> Listener:
        """Return the listener to a partition's notifications."""
        listener = self._listeners.get(tag)
        if listener is None:
            listener = self._listeners[tag] = Listener(self._servers, f"{tag}:notifications")
        return listener

    async def info(self) -> list[dict[str, Any]]:
        """Return what INFO says, of every primary."""

        async def ask() -> list[dict[str, Any]]:
            primaries = await self._servers.primaries()
            return await bounded_gather(node.execute("INFO") for node in primaries)

        found: list[dict[str, Any]] = await self._retry(ask)
        return found

    async def time(self) -> tuple[int, int]:
        """Return the time of the first partition's server, in seconds and microseconds; not repeated on failure."""
        try:
            with closed_as_broken():
                node = await self._servers.node_of(self._topology.tag(0))
                found: tuple[int, int] = await node.execute("TIME")
        except DRIVER_ERRORS as error:
            raise map_error(error, self._topology.address.shown) from error
        return found

    async def ensure_admitted(self) -> None:
        """Check the servers before the first call, and every second which is the primary and what partitions exist."""
        topology = self._topology
        await self._servers.ensure_primary()
        if not topology.is_admitted:
            await self._admit()
        elif self._loop.time() >= topology.partitions_until:
            async with self._refreshing:
                if self._loop.time() >= topology.partitions_until:
                    topology.partitions_until = self._loop.time() + CHECK_PARTITIONS_SECONDS
                    # The caller may need other servers than this one, which may be away.
                    with contextlib.suppress(*DRIVER_ERRORS), closed_as_broken():
                        await self._register(topology.partitions)

    async def refresh_partitions(self) -> None:
        """Learn of partitions that other processes have added."""
        await self._retry(lambda: self._register(self._topology.partitions))

    async def _admit(self) -> None:
        """Check every primary, then agree on the number of partitions."""
        primaries = await self._retry(self._admission.check_primaries)
        wanted, default = self._topology.address.partitions or 0, partitions_for(primaries)
        await self._retry(lambda: self._register(wanted, default))
        self._topology.is_admitted = True

    async def _register(self, wanted: int, default: int = 1) -> None:
        """Ask for at least so many partitions, and note how many there are.

        The script records which releases can use a new store; like every script it refuses one that this release
        cannot use.
        """
        made_by = (COMPATIBILITY.oldest_schema, COMPATIBILITY.oldest_release, COMPATIBILITY.migrated_by)
        arguments = (SCHEMA_VERSION, wanted, default, *made_by)
        partitions = await self._run(script("register"), self._topology.tag(0), arguments)
        self._topology.add_partitions(int(partitions), self._loop.time())

    async def _run(self, wanted: Script, tag: str, arguments: tuple[Argument, ...]) -> Any:  # noqa: ANN401 - as above
        is_checked = wanted.name not in _UNCHECKED
        try:
            node = await self._servers.node_of(tag)
            primary = self._topology.primary
            if is_checked:
                await self._admission.check_again(node)
            reply = await _send(node, wanted, tag, arguments)
            if is_checked:
                # Another call may have lost its connection meanwhile: then this one may have had a new connection.
                await self._admission.check_again(node)
        except DRIVER_ERRORS:
            self._topology.forget_checks()
            raise
        if self._replica_ack is not None:
            await self._replica_ack.wait(node)
        if self._topology.primary != primary:
            message = "another server became the primary during the call"
            raise redis_errors.ConnectionError(message)
        return reply

    async def _retry(self, call: Callable[[], Any]) -> Any:  # noqa: ANN401 - as above
        """Make a call; repeat it while it fails with errors that may pass."""
        pause, give_up_at = 0.0, 0.0
        while True:
            if self._is_closed:
                raise StoreClosed
            try:
                with closed_as_broken():
                    return await call()
            except DRIVER_ERRORS as error:
                give_up_at = give_up_at or self._loop.time() + self._retry_seconds
                if not is_transient(error) or (pause and self._loop.time() >= give_up_at):
                    raise map_error(error, self._topology.address.shown) from error
            pause = min(2 * pause, MAX_PAUSE_SECONDS) or MIN_PAUSE_SECONDS
            await asyncio.sleep(pause)

    async def _close_with_loop(self) -> None:
        """Wait until the loop, or `close`, cancels this task; then disconnect, so that nothing is left open."""
        try:
            await self._loop.create_future()
        finally:
            await self._disconnect()

    async def close(self) -> None:
        """Stop listening and disconnect."""
        self._closer.cancel()
        await asyncio.gather(self._closer, return_exceptions=True)
        if not self._is_closed:
            # The task was cancelled before it began.
            await self._disconnect()

    def close_from_outside(self) -> None:
        """Close from another loop, as soon as this one runs."""
        with contextlib.suppress(RuntimeError):  # the loop is closed, and has disconnected
            self._loop.call_soon_threadsafe(self._closer.cancel)

    async def _disconnect(self) -> None:
        self._is_closed = True
        await asyncio.gather(*(listener.close() for listener in self._listeners.values()))
        await self._servers.close()


async def _send(node: Node, wanted: Script, tag: str, arguments: tuple[Argument, ...]) -> Any:  # noqa: ANN401 - as above
    try:
        return await node.execute("EVALSHA", wanted.sha, 1, tag, *arguments)
    except redis_errors.NoScriptError:
        # A server that was restarted, or promoted, does not have the script.
        return await node.execute("EVAL", wanted.text, 1, tag, *arguments)
