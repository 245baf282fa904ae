"""What is read of a partition. Reads change nothing, and may run on any connection."""

import asyncio
from typing import Any

from reprieve.core.events import Event
from reprieve.core.ids import id_to_bytes
from reprieve.stores import search
from reprieve.stores.event_record import readable_events
from reprieve.stores.protocol import Entry, Filter, LimitState, Page, Subject, Tally
from reprieve.stores.redis import limit_states, replies
from reprieve.stores.redis.connections import Connections
from reprieve.stores.redis.find import SHAPES, PartitionSearch
from reprieve.stores.redis.loop_reader import LoopReader
from reprieve.stores.redis.node import Argument
from reprieve.stores.redis.records import unpack_event


class PartitionReads:
    """Reads one partition."""

    def __init__(self, connections: Connections, tag: str) -> None:
        """Take the connections, and the partition's hash tag."""
        self._connections = connections
        self._tag = tag

    async def run(self, name: str, *arguments: Argument) -> Any:  # noqa: ANN401 - as the script replies
        """Run a script."""
        return await self._connections.current().run(name, self._tag, *arguments)

    async def command(self, command: str, key: str, *arguments: Argument) -> Any:  # noqa: ANN401 - as the server replies
        """Run a command on one of the partition's keys."""
        return await self._connections.current().command(command, f"{self._tag}:{key}", *arguments)

    async def progress(self, job_id: str) -> bytes | None:
        """Return the progress of a running job."""
        annotation = await self.command("HGET", "annotations", id_to_bytes(job_id))
        start = 2 + int.from_bytes(annotation[:2], "big") if annotation else 0
        return bytes(annotation[start + 1 :]) if annotation and len(annotation) > start else None

    async def find(self, wanted: Filter, now: int, cursor: str, limit: int) -> Page:
        """Return jobs as they are; in a thread, since unpacking many of them takes time."""
        # A session reads its leases where it claims: the client of threads may still use a server that was deposed.
        reader = LoopReader(self._connections.current()) if wanted.session else self._connections
        return await asyncio.to_thread(
            lambda: search.find(PartitionSearch(reader, self._tag, now), wanted, cursor, limit, SHAPES)
        )

    async def tally(self, by: Tally, wanted: Filter, now: int) -> dict[str, int]:
        """Return how many jobs there are, grouped."""
        return await asyncio.to_thread(
            lambda: search.tally(PartitionSearch(self._connections, self._tag, now), by, wanted)
        )

    async def events(self, after: int, limit: int, job_id: str) -> tuple[int, list[tuple[int, Event]]]:
        """Return the server's time, and events in order, each with its position."""
        while True:
            time, *found = await self.run("read_events", after, limit, id_to_bytes(job_id) if job_id else b"")
            stored = list(replies.rows(replies.StoredEvent, found))
            events = readable_events((int(one.position), unpack_event(one.job_id, one.data)) for one in stored)
            if events or not stored:
                return time, events
            after = int(stored[-1].position)

    async def result(self, job_id: str) -> bytes | None:
        """Return what a succeeded job returned."""
        found: bytes | None = await self.command("HGET", "results", id_to_bytes(job_id))
        return found

    async def entries(self, prefix: str) -> list[Entry]:
        """Return the entries whose key has a prefix."""
        found = await self.command("HGETALL", "entries")
        entries = (limit_states.unpack_entry(key, data) for key, data in found.items())
        return sorted((entry for entry in entries if entry.key.startswith(prefix)), key=lambda entry: entry.key)

    async def limit_states(self, subject: Subject, queue: str) -> list[LimitState]:
        """Return the limits of every queue, tenant, task, dependency or group, and how far they are used."""
        queues = await self.command("HGETALL", "queues")
        if subject == "tenant":
            return limit_states.tenants(await self.command("HGETALL", "tenants"), queues, queue)
        return limit_states.limiters(subject, await self.command("HGETALL", "limiters"), queues, queue)
