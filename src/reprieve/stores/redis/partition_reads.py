"""What is read of a partition. Reads change nothing, and may run on any connection."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from reprieve.core.ids import id_to_bytes
from reprieve.core.series import SeriesSubject, Step
from reprieve.stores import search
from reprieve.stores.entry_cursor import LAST_CHARACTER, has_expired, parse_cursor
from reprieve.stores.event_page import StoredEvent, page_of, rows_to_read
from reprieve.stores.failure_record import unpack_group
from reprieve.stores.places import Position, Wanted
from reprieve.stores.protocol import (
    Entry,
    EntryChanges,
    EntryPage,
    EventPage,
    EventQuery,
    FailureGroup,
    Filter,
    LimitState,
    LimitUpdate,
    Session,
    Subject,
    Tallied,
    Tally,
    Told,
)
from reprieve.stores.redis import limit_states, replies, series
from reprieve.stores.redis.connections import Connections
from reprieve.stores.redis.counting import PartitionSearch
from reprieve.stores.redis.limit_defaults import Defaults
from reprieve.stores.redis.limit_updates import SUBJECT_LETTERS
from reprieve.stores.redis.loop_reader import LoopReader
from reprieve.stores.redis.node import Argument
from reprieve.stores.redis.records import unpack_event
from reprieve.stores.search import Look
from reprieve.stores.series import StoredLine
from reprieve.stores.tallying import tally

SCAN_COUNT: Final = 1_000
"""Fields of a hash, or lanes, that one call reads."""

MAX_JOB_EVENTS: Final = 200
"""Events of one job that a call reads at most: each of them is looked up in the stream."""

_encode = msgspec.msgpack.Encoder().encode


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

    async def look(self, wanted: Wanted, start: Position | None, limit: int) -> Look:
        """Return jobs as they are; in a thread, since unpacking many of them takes time."""
        # A session reads its leases where it claims: the client of threads may still use a server that was deposed.
        reader = LoopReader(self._connections.current()) if wanted.filter.session else self._connections
        return await asyncio.to_thread(
            lambda: search.look(PartitionSearch(reader, self._tag, wanted.now), wanted, start, limit)
        )

    async def tally(self, by: Tally, wanted: Filter, now: int, at_most: int) -> Tallied:
        """Return how many jobs there are, grouped."""
        return await asyncio.to_thread(
            lambda: tally(PartitionSearch(self._connections, self._tag, now), by, wanted, now, at_most)
        )

    async def events(self, query: EventQuery) -> tuple[int, EventPage]:
        """Return the server's time, and a page of events."""
        if query.job_id:
            query = replace(query, limit=min(query.limit, MAX_JOB_EVENTS))
        before = "" if query.before is None else query.before
        job = id_to_bytes(query.job_id) if query.job_id else b""
        order = "1" if query.newest_first else ""
        reply = await self.run("read_events", query.after, before, rows_to_read(query), order, job)
        time, ends, rows = replies.read_events(reply)
        return time, page_of(query, rows, ends, _read_event)

    async def result(self, job_id: str) -> bytes | None:
        """Return what a succeeded job returned."""
        found: bytes | None = await self.command("HGET", "results", id_to_bytes(job_id))
        return found

    async def lines(
        self, step: Step, subject: SeriesSubject, ats: Sequence[int], names: Sequence[str] = ()
    ) -> list[StoredLine]:
        """Return the lines of series in buckets that begin then, of some names or of all."""
        wanted = series.bucket_argument(step, subject, ats, names)
        return series.read_lines(await self.run("read_series", wanted), ats)

    async def failure_groups(self, fingerprints: Sequence[str]) -> list[FailureGroup]:
        """Return the groups of failures with these fingerprints."""
        packed = await self.command("HMGET", "failures", *fingerprints)
        seen = await self.command("ZMSCORE", "failures_seen", *fingerprints)
        both = ((record, at) for record, at in zip(packed, seen, strict=True) if record is not None and at is not None)
        found = (unpack_group(record, int(float(at))) for record, at in both)
        return [group for group in found if group is not None]

    async def entries(self, prefix: str, now: int, cursor: str, limit: int) -> EntryPage:
        """Return a page of the entries whose key has a prefix."""
        start = f"({cursor}" if cursor else f"[{prefix}"
        keys = await self.command("ZRANGEBYLEX", "entry_keys", start, f"[{prefix}{LAST_CHARACTER}", "LIMIT", 0, limit)
        found = await self.command("HMGET", "entries", *keys) if keys else []
        entries = [limit_states.unpack_entry(*one) for one in zip(keys, found, strict=True) if one[1] is not None]
        return EntryPage(
            entries=tuple(one for one in entries if one.key.startswith(prefix) and not has_expired(one, now)),
            cursor=keys[-1].decode() if len(keys) == limit else "",
        )

    async def _all_entries(self, prefix: str, now: int) -> list[Entry]:
        page = await self.entries(prefix, now, "", SCAN_COUNT)
        entries = list(page.entries)
        while page.cursor:
            page = await self.entries(prefix, now, page.cursor, SCAN_COUNT)
            entries += page.entries
        return entries

    async def sessions(self, now: int) -> list[Session]:
        """Return the sessions whose lease lasts, by id."""
        found = replies.rows(replies.StoredSession, await self.run("read_sessions", now))
        return sorted((stored.session() for stored in found), key=lambda session: session.id)

    async def entry(self, key: str, now: int) -> Entry | None:
        """Return the entry of a key."""
        found = await self.command("HGET", "entries", key)
        entry = None if found is None else limit_states.unpack_entry(key.encode(), found)
        return None if entry is None or has_expired(entry, now) else entry

    async def entries_since(self, cursor: str, prefix: str, now: int) -> EntryChanges:
        """Return the entries that changed since a cursor."""
        last = parse_cursor(cursor)
        reply = await self.run("entry_changes", last.number, last.stamp.to_bytes(8, "big"))
        changes = limit_states.entry_changes(reply, prefix, now)
        if reply[0] == b"changed":
            return changes
        # They may be newer than the cursor: then they are read once more the next time.
        return replace(changes, entries=tuple(await self._all_entries(prefix, now)), is_whole=True)

    async def states_of(self, subject: Subject, fields: Sequence[str]) -> list[LimitState]:
        """Return the limits of names, by their fields, and how far they are used."""
        queues, defaults = await self.command("HGETALL", "queues"), await self._defaults()
        if subject == "tenant":
            packed = await self.command("HMGET", "tenants", *fields)
            return [limit_states.tenant(*pair, queues, defaults) for pair in zip(fields, packed, strict=True)]
        packed = await self.command("HMGET", "limiters", *fields)
        return [limit_states.limiter(subject, *pair, queues, defaults) for pair in zip(fields, packed, strict=True)]

    async def fields_of(self, subject: Subject) -> AsyncIterator[str]:
        """Yield the fields of the names of a subject that are stored, in steps."""
        letter = SUBJECT_LETTERS[subject]
        if subject == "queue":
            # A queue without running jobs and limits has no limiter.
            for name in await self.command("HKEYS", "queues"):
                yield letter + name.decode()
        async for field, _ in self.scan_hash("tenants" if subject == "tenant" else "limiters"):
            if subject == "tenant" or field[:1] == letter.encode():
                yield field.decode()

    async def scan_hash(self, key: str) -> AsyncIterator[tuple[bytes, bytes]]:
        """Yield the fields and values of a hash in steps; what changes meanwhile may be there or not, or twice."""
        cursor = 0
        while True:
            following, found = await self.command("HSCAN", key, cursor, "COUNT", SCAN_COUNT)
            for field, value in found.items() if isinstance(found, dict) else replies.pairs(found):
                yield field, value
            cursor = int(following)
            if not cursor:
                return

    async def ready_since(self, lanes: Sequence[bytes]) -> list[int | None]:
        """Return since when the first job of each lane is ready."""
        times: list[int | None] = []
        for start in range(0, len(lanes), SCAN_COUNT):
            some = [lane.decode() for lane in lanes[start : start + SCAN_COUNT]]
            found = await self.run("oldest_ready", _encode(some))
            times += [int(at) if at else None for at in found]
        return times

    async def limit_states(self, subject: Subject) -> list[LimitState]:
        """Return the limits of every name of a subject that is stored."""
        fields = sorted({field async for field in self.fields_of(subject)})
        return await self.states_of(subject, fields) if fields else []

    async def limit_defaults(self) -> list[LimitUpdate]:
        """Return the defaults of the partition."""
        return list((await self._defaults()).updates())

    async def _defaults(self) -> Defaults:
        return Defaults(await self.command("HGETALL", "limit_defaults"))


def _read_event(stored: StoredEvent) -> Told | None:
    return unpack_event(stored.job_id, stored.data)
