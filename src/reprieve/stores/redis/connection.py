"""The connection of one event loop, over which scripts and commands run.

A call whose connection breaks is repeated for a few seconds. Every script that runs a second time changes nothing and
replies as it did the first time, but for limit updates without an entry, which are applied again.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from redis import exceptions as redis_errors

from reprieve.errors import NewerSchema
from reprieve.stores.redis.admission import Admission
from reprieve.stores.redis.error_mapping import DRIVER_ERRORS, closed_as_broken, is_transient, map_error
from reprieve.stores.redis.listener import Listener
from reprieve.stores.redis.primary_watch import PrimaryWatch
from reprieve.stores.redis.replica_ack import ReplicaAck
from reprieve.stores.redis.scripts import Script, script
from reprieve.stores.redis.tags import partitions_for
from reprieve.stores.redis.topology import CHECK_PARTITIONS_SECONDS, SCHEMA_VERSION, Topology

MIN_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.02, 0.5
"""The pause before a repeat, at first and at most; it doubles each time."""

_UNCHECKED = frozenset({"heartbeat", "register"})
"""Scripts of a heartbeat, which run on a server that has become unsafe: a session that waits for it must not die."""

Argument = bytes | str | int | float


class Connection:
    """The connection of one event loop to the servers."""

    def __init__(self, topology: Topology, retry_seconds: float) -> None:
        """Make a client, which connects with the first call; a call is repeated for `retry_seconds`."""
        self._topology = topology
        self._retry_seconds = retry_seconds
        self._client = topology.address.connect_async()
        self._admission = Admission(self._client, topology)
        is_promoted = topology.address.mode != "single"
        is_strict = topology.durability == "strict"
        self._replica_ack = ReplicaAck(self._client, is_promoted=is_promoted) if is_strict else None
        self._watch = PrimaryWatch(self._client, topology) if topology.address.mode == "sentinel" else None
        self._listeners: dict[str, Listener] = {}
        self._loop = asyncio.get_running_loop()
        self._refreshing = asyncio.Lock()
        self._closer = self._loop.create_task(self._close_with_loop())

    async def run(self, name: str, tag: str, *arguments: Argument) -> Any:  # noqa: ANN401 - as the script replies
        """Run a script on a partition."""
        if not self._topology.is_admitted:
            await self._admit()
        wanted = script(name)
        return await self._retry(lambda: self._run(wanted, tag, arguments))

    async def command(self, *parts: Argument) -> Any:  # noqa: ANN401 - as the server replies
        """Run a command."""
        return await self._retry(lambda: self._client.execute_command(*parts))

    def listener(self, tag: str) -> Listener:
        """Return the listener to a partition's notifications."""
        listener = self._listeners.get(tag)
        if listener is None:
            listener = self._listeners[tag] = Listener(self._client, f"{tag}:notifications")
        return listener

    async def info(self) -> list[dict[str, Any]]:
        """Return what INFO says, of every primary."""
        if self._topology.address.mode == "cluster":
            nodes = await self._retry(lambda: self._client.info(target_nodes=self._client.PRIMARIES))
            return (
                [info for info in nodes.values() if isinstance(info, dict)] if "redis_version" not in nodes else [nodes]
            )
        return [await self._retry(self._client.info)]

    async def time(self) -> tuple[int, int]:
        """Return the time of the first partition's server, in seconds and microseconds; not repeated on failure."""
        try:
            with closed_as_broken():
                await self._ensure_primary()
                found: tuple[int, int] = await self._client.time()
        except DRIVER_ERRORS as error:
            raise map_error(error, self._topology.address.shown) from error
        return found

    async def ensure_admitted(self) -> None:
        """Check the servers before the first call, and every second which is the primary and what partitions exist."""
        topology = self._topology
        await self._ensure_primary()
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
        """Check every primary, then agree on the schema version and the number of partitions."""
        primaries = await self._retry(self._admission.check_primaries)
        wanted, default = self._topology.address.partitions or 0, partitions_for(primaries)
        version = await self._retry(lambda: self._register(wanted, default))
        if version > SCHEMA_VERSION:
            found = f"the store has schema version {version}, of a newer release"
            message = f"{found}; this one knows {SCHEMA_VERSION}: update it"
            raise NewerSchema(message)
        self._topology.is_admitted = True

    async def _register(self, wanted: int, default: int = 1) -> int:
        """Ask for at least so many partitions, and note how many there are; return the schema version."""
        arguments = (SCHEMA_VERSION, wanted, default)
        version, partitions = await self._run(script("register"), self._topology.tag(0), arguments)
        self._topology.add_partitions(int(partitions), self._loop.time())
        return int(version)

    async def _run(self, wanted: Script, tag: str, arguments: tuple[Argument, ...]) -> Any:  # noqa: ANN401 - as above
        is_checked, primary = wanted.name not in _UNCHECKED, self._topology.primary
        try:
            if is_checked:
                await self._admission.check_again(tag)
            reply = await self._send(wanted, tag, arguments)
            if is_checked:
                # A Cluster may have redirected the call to another server.
                await self._admission.check_again(tag)
        except DRIVER_ERRORS:
            self._topology.forget_checks()
            raise
        if self._replica_ack is not None:
            await self._replica_ack.wait(tag)
        if self._topology.primary != primary:
            message = "another server became the primary during the call"
            raise redis_errors.ConnectionError(message)
        return reply

    async def _send(self, wanted: Script, tag: str, arguments: tuple[Argument, ...]) -> Any:  # noqa: ANN401 - as above
        try:
            return await self._client.execute_command("EVALSHA", wanted.sha, 1, tag, *arguments)
        except redis_errors.NoScriptError:
            # A server that was restarted, or promoted, does not have the script.
            return await self._client.execute_command("EVAL", wanted.text, 1, tag, *arguments)

    async def _retry(self, call: Callable[[], Any]) -> Any:  # noqa: ANN401 - as above
        """Make a call; repeat it while it fails with errors that may pass."""
        pause, give_up_at = 0.0, 0.0
        while True:
            try:
                with closed_as_broken():
                    await self._ensure_primary()
                    return await call()
            except DRIVER_ERRORS as error:
                give_up_at = give_up_at or self._loop.time() + self._retry_seconds
                if not is_transient(error) or (pause and self._loop.time() >= give_up_at):
                    raise map_error(error, self._topology.address.shown) from error
            pause = min(2 * pause, MAX_PAUSE_SECONDS) or MIN_PAUSE_SECONDS
            await asyncio.sleep(pause)

    async def _ensure_primary(self) -> None:
        """Ask the Sentinels, if there are any, unless they were asked within the last second."""
        if self._watch is not None:
            await self._watch.ensure_asked()

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

    def close_from_outside(self) -> None:
        """Close from another loop, as soon as this one runs."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._closer.cancel)

    async def _disconnect(self) -> None:
        await asyncio.gather(*(listener.close() for listener in self._listeners.values()))
        await self._client.aclose()
        pool = getattr(self._client, "connection_pool", None)
        if pool is not None:
            await pool.disconnect(inuse_connections=True)
        if self._watch is not None:
            await self._watch.close()
