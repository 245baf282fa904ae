"""A partition: a whole store under one hash tag. Every write to it is one script, and so atomic."""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from reprieve.core import change as changes_of
from reprieve.core.change import Change
from reprieve.core.duration import milliseconds
from reprieve.core.fairness.candidates import Capacity
from reprieve.core.fairness.exclusion import turn_of
from reprieve.core.fairness.settings import DEFAULTS
from reprieve.core.ids import id_from_bytes, id_to_bytes
from reprieve.core.job import Job
from reprieve.core.move import Return
from reprieve.core.notice import Notice
from reprieve.core.series import pack_deltas
from reprieve.errors import SessionDead, StaleCall, StoreError
from reprieve.rng import bits
from reprieve.stores.audit_pages import pack_entry
from reprieve.stores.capabilities import FaultPoint
from reprieve.stores.causes import oldest_hour
from reprieve.stores.event_record import pack_notice
from reprieve.stores.failure_record import pack_group
from reprieve.stores.protocol import (
    IDLE_SECONDS,
    Annotation,
    ChangeResult,
    Claim,
    Claimed,
    Entry,
    EntryWrite,
    EntryWritten,
    Expired,
    FailureGroup,
    Heartbeat,
    LimitUpdate,
    Pruned,
    Retention,
    cancel_requested,
    names_interval,
    repeated,
)
from reprieve.stores.record import pack_cancel_request
from reprieve.stores.redis import enqueue, limit_updates, series, settle
from reprieve.stores.redis.bounded_gather import bounded_gather
from reprieve.stores.redis.connections import Connections
from reprieve.stores.redis.enqueue import MAX_JOBS_PER_CALL, RelayReceipt
from reprieve.stores.redis.entry_write import NOTHING_CARRIED, CarriedArguments, carried_arguments
from reprieve.stores.redis.limit_updates import NO_AUDIT, LimitAudit, Overtaken, WantedState
from reprieve.stores.redis.listener import StreamId
from reprieve.stores.redis.node import Argument
from reprieve.stores.redis.partition_reads import PartitionReads
from reprieve.stores.redis.partitioned_claim import MAX_CALLS_PER_CLAIM
from reprieve.stores.redis.records import unpack
from reprieve.stores.redis.replies import ClaimReply, HeldJob, StoredJob, pairs, read_claim, rows
from reprieve.stores.session_notices import session_ended, session_opened
from reprieve.stores.session_record import pack_heartbeat, pack_origin

MAX_CHANGES_PER_CALL = 40
"""Changes that one script applies; a claim waits for it, some 20 ms if all were applied before."""

MAX_IDS_PER_CALL = 1_000

UNKNOWN, STORED = "unknown", "stored"
"""What a partition knows of a job: nothing; or all, and the job has not succeeded. See has_jobs.lua for other words."""

_PRUNED = ("succeeded", "cancelled", "dead", "events", "keys", "results", "failures", "audit", "causes", "entries")
"""What prune.lua counts, in its order."""

_encode = msgspec.msgpack.Encoder().encode
_SETTINGS = msgspec.Raw(_encode(msgspec.structs.asdict(DEFAULTS)))


class Grown(Exception):
    """There is more than one partition now, so unique keys are kept elsewhere; nothing was done."""


class SessionView:
    """What this process knows of a session in a partition."""

    __slots__ = ("held", "last_notification", "number")

    def __init__(self) -> None:
        """Know nothing yet."""
        self.held: set[bytes] = set()
        """Ids of the jobs that it holds."""
        self.number = 0
        """The number of its last call that did anything."""
        self.last_notification: StreamId | None = None


class Partition:
    """One partition of a store."""

    def __init__(self, connections: Connections, number: int) -> None:
        """Take the connections; the number is part of the hash tag, and of the ids of the partition's jobs."""
        self.number = number
        self.tag = connections.topology.tag(number)
        self._connections = connections
        self.reads = PartitionReads(connections, self.tag)
        self._sessions: dict[str, SessionView] = {}
        self._fault: FaultPoint | None = None

    def inject(self, point: FaultPoint) -> None:
        """Make the next write fail before it is sent, or after the reply has come."""
        self._fault = point

    async def _write(self, name: str, *arguments: Argument) -> Any:  # noqa: ANN401 - as the script replies
        fault, self._fault = self._fault, None
        if fault == "before":
            message = "this write was to fail before it is sent"
            raise StoreError(message)
        reply = await self.reads.run(name, *arguments)
        if fault == "after":
            message = "the reply to this write was to be lost"
            raise StoreError(message)
        return reply

    async def has_jobs(self, ids: Sequence[str]) -> list[str]:
        """Return for each job whether it is stored, succeeded, remembered or unknown."""
        known: list[str] = []
        for start in range(0, len(ids), MAX_IDS_PER_CALL):
            some = b"".join(map(id_to_bytes, ids[start : start + MAX_IDS_PER_CALL]))
            known += (word.decode() for word in await self.reads.run("has_jobs", some))
        return known

    async def enqueue(self, jobs: Sequence[Job], now: int, *, has_keys: bool = True) -> list[str]:
        """Store new jobs, some at a time; return the id under which each is known. Raises `Grown`."""
        ids = [job.id for job in jobs]
        for start in range(0, len(jobs), MAX_JOBS_PER_CALL):
            some = jobs[start : start + MAX_JOBS_PER_CALL]
            taken = await self._write("enqueue", *enqueue.encode(some, now, has_keys=has_keys))
            if taken == [b"grown"]:
                raise Grown
            _use_holders(ids, taken, start)
        return ids

    def enqueue_here(self, job: Job, now: int) -> str | None:
        """Store a new job from the calling thread; None if that takes more than one round trip, or failed."""
        if self._fault is not None:
            return None
        taken = self._connections.run_once("enqueue", self.tag, *enqueue.encode((job,), now))
        if taken is None or taken == [b"grown"]:
            return None
        ids = [job.id]
        _use_holders(ids, taken)
        return ids[0]

    async def deliver(
        self, jobs: Sequence[Job], now: int, receipt: RelayReceipt, *, has_keys: bool
    ) -> tuple[int, list[str] | None]:
        """Store jobs from an outbox, no more than one call takes; return the server's time, and their ids.

        None instead of ids: nothing was done, the jobs were taken too long ago. Raises `Grown`.
        """
        word, *rest = await self._write("enqueue", *enqueue.encode(jobs, now, has_keys=has_keys, receipt=receipt))
        if word == b"grown":
            raise Grown
        clock, *taken = rest
        if word == b"late":
            return int(clock), None
        ids = [job.id for job in jobs]
        _use_holders(ids, taken)
        return int(clock), ids

    async def is_relayed(self, ids: Sequence[str]) -> list[bool]:
        """Return for each job whether it came here out of an outbox, and that is still remembered."""
        return [until is not None for until in await self.reads.command("ZMSCORE", "relayed", *map(id_to_bytes, ids))]

    async def claim(self, request: Claim) -> Claimed:
        """Settle and claim."""
        exclude = (request.exclude, *turn_of(request.number // MAX_CALLS_PER_CLAIM)) if request.exclude else None
        is_part = self._connections.topology.partitions > 1
        wanted = (request.number, request.limit, request.queues, _SETTINGS, is_part, exclude)
        head = (request.now, request.session, *wanted)
        changes = settle.encode(request.changes, request.session, request.now)
        counted = pack_deltas(request.series) if request.series else b""
        starts = settle.encode_starts(request.starts)
        reply = await self._write("settle_and_claim", _encode(head), changes[0], counted, starts, *changes[1:])
        if reply[0] == b"dead":
            self._sessions.pop(request.session, None)
            raise session_dead(request.session)
        if reply[0] == b"stale":
            raise stale_call(
                request.session, request.number // MAX_CALLS_PER_CLAIM, int(reply[1]) // MAX_CALLS_PER_CLAIM
            )
        claimed = read_claim(reply, request)
        await self._check_held(request, claimed)
        return Claimed(results=tuple(claimed.results), jobs=tuple(claimed.jobs), next_at=claimed.next_at)

    async def _check_held(self, request: Claim, claimed: ClaimReply) -> None:
        """Note what a session holds; if the server has lost one of its calls, give back what it does not know of.

        A server that crashed or failed over may have lost a settlement. Then it holds jobs for a session that lives and
        does not run them, so they would never be recovered.
        """
        session = self._sessions.setdefault(request.session, SessionView())
        session.last_notification = claimed.last_notification
        settled = (change.job.id for change in request.changes if change.session == request.session)
        session.held.difference_update(map(id_to_bytes, settled))
        session.held.update(claimed.ids)
        has_lost_call = claimed.previous < session.number
        is_remembered = request.changes or claimed.ids or request.series or request.starts
        session.number = request.number if is_remembered else claimed.previous
        if not has_lost_call:
            return
        leased = await self.reads.command("HKEYS", f"leases:{request.session}")
        unknown = b"".join(raw for raw in leased if raw not in session.held)
        if unknown:
            found = rows(StoredJob, await self.reads.run("find_by_ids", unknown))
            lost = [changes_of.settle(one.job(), Return(), request.now) for one in found if one.is_running]
            await self.apply(lost, request.now)

    async def apply(self, changes: Sequence[Change], now: int) -> list[ChangeResult]:
        """Apply changes that no session makes."""
        results: list[ChangeResult] = []
        for start in range(0, max(1, len(changes)), MAX_CHANGES_PER_CALL):
            some = changes[start : start + MAX_CHANGES_PER_CALL]
            head = _encode((now, "", 0, 0, (), _SETTINGS))
            heads, *details = settle.encode(some, "", now)
            _, words, *_ = await self._write("settle_and_claim", head, heads, b"", b"", *details)
            results += settle.decode(words, len(some))
        return results

    async def heartbeat(self, heartbeat: Heartbeat, share: Capacity) -> bool:
        """Keep a session alive, or open it with its share of slots and prefetch; return whether it lives."""
        is_over = heartbeat.lease <= 0
        expires_at = heartbeat.now + milliseconds(heartbeat.lease)
        slots, prefetch = share
        queues = tuple(heartbeat.queues)
        head = (heartbeat.session, expires_at, slots, prefetch, queues, heartbeat.is_new, is_over)
        said = pack_heartbeat(heartbeat) if self.number == 0 else b""
        origin = pack_origin(heartbeat) if self.number == 0 and heartbeat.is_new else b""
        notice = b""
        if self.number == 0 and (is_over or heartbeat.is_new):
            notice = pack_notice(session_ended(heartbeat) if is_over else session_opened(heartbeat))
        reply = await self._write("heartbeat", _encode(head), said, origin, notice, heartbeat.now)
        is_alive: bool = reply == b"alive"
        if not is_alive:
            self._sessions.pop(heartbeat.session, None)
        return is_alive

    async def recover(self, now: int, limit: int) -> list[Job]:
        """Expire sessions past their lease; return the jobs they hold."""
        return [held.job() for held in rows(HeldJob, await self._write("recover", now, limit, int(self.number == 0)))]

    async def expire(self, now: int, limit: int) -> Expired:
        """End waiting jobs whose time has come; return them."""
        has_more, *ended = await self._write("expire", now, min(limit, MAX_CHANGES_PER_CALL))
        return Expired(jobs=tuple(unpack(raw, record) for raw, record in pairs(ended)), has_more=bool(has_more))

    async def annotate(self, annotations: Sequence[Annotation]) -> list[bool]:
        """Request a cancel or note progress; return for each whether its job runs."""
        heads = tuple((annotation.session, annotation.progress is not None) for annotation in annotations)
        ids = b"".join(id_to_bytes(annotation.job_id) for annotation in annotations)
        parts = (
            part
            for annotation in annotations
            for part in (
                pack_cancel_request(annotation.cancel) if annotation.cancel else b"",
                pack_entry(cancel_requested(annotation, annotation.cancel, tenant="", queue=""))
                if annotation.cancel
                else b"",
                annotation.progress or b"",
            )
        )
        return [bool(is_running) for is_running in await self._write("annotate", _encode(heads), ids, *parts)]

    async def describe_failures(self, groups: Sequence[FailureGroup]) -> None:
        """Keep what groups of failures look like."""
        fields: list[Argument] = []
        for group in groups:
            fields += (group.fingerprint, group.last_seen_at, pack_group(group))
        await self._write("describe_failures", *fields)

    async def update_limits(
        self,
        updates: Sequence[LimitUpdate],
        now: int,
        state: WantedState | None = None,
        audit: LimitAudit = NO_AUDIT,
    ) -> None:
        """Change limits, weights and pauses. Raises `Overtaken`, and nothing was done."""
        await self._update_limits(updates, now, state, audit, ("", "", 0, "", b"", b"", 0))

    async def _update_limits(
        self,
        updates: Sequence[LimitUpdate],
        now: int,
        state: WantedState | None,
        audit: LimitAudit,
        entry: tuple[Argument, ...],
        carried: CarriedArguments = NOTHING_CARRIED,
    ) -> list[Any]:
        fields = state.fields if state else ()
        partitions = self._connections.topology.partitions
        if state is not None:
            updates = [limit_updates.share_of_default(update, self.number, partitions) for update in updates]
        encoded = limit_updates.encode(updates, now, state, partitions)
        told = limit_updates.told(audit, len(updates))
        counts = _encode((len(fields), carried.lanes, carried.job_count))
        reply = await self._write("update_limits", encoded, *entry, told, counts, *fields, *carried.arguments)
        if reply[0] == b"overtaken":
            message = "another process has just changed the limits of all partitions; repeat the call"
            raise Overtaken(message)
        return list(reply)

    async def compare_and_set(
        self,
        write: EntryWrite,
        now: int,
        audit: LimitAudit,
        state: WantedState | None = None,
        *,
        has_keys: bool = True,
    ) -> EntryWritten:
        """Set or delete an entry if it has this version, with what it carries. Raises `Overtaken`, or `Grown`."""
        value = write.value or b""
        step = "delete" if write.value is None else "set"
        write_id = write.write_id.to_bytes(8, "big")
        entry = ("entry", write.key, write.version, step, value, write_id, write.expires_at or 0)
        carried = carried_arguments(write, now, has_keys=has_keys)
        word, newest, *rest = await self._update_limits(write.updates, now, state, audit, entry, carried)
        if word == b"grown":
            raise Grown
        if word == b"refused":
            return EntryWritten(entry=None, results=tuple(settle.decode(rest[0], len(write.changes))))
        if word == b"lost":
            return EntryWritten(entry=None)
        expires_at = None if write.value is None else write.expires_at
        stored = Entry(key=write.key, version=int(newest), value=value, expires_at=expires_at)
        if word == b"done":
            return repeated(write, stored)
        results, *taken = rest
        ids = [job.id for job in write.jobs]
        _use_holders(ids, taken)
        return EntryWritten(entry=stored, ids=tuple(ids), results=tuple(settle.decode(results, len(write.changes))))

    async def limit_shares(
        self, step: str, now: int, epoch: int = 0, items: Sequence[dict[str, object]] = (), number: int = 0
    ) -> list[Any] | None:
        """Begin, read, freeze or grant shares; None: another process has frozen the partition since."""
        word, *shares = await self._write("limit_shares", _encode((step, now, epoch, items, number)))
        return None if word == b"stale" else shares

    async def tell(self, notices: Sequence[Notice]) -> None:
        """Add notices to the stream."""
        latest = max(notice.at for notice in notices)
        await self._write("tell", latest, *map(pack_notice, notices))

    async def prune(self, retention: Retention) -> Pruned:
        """Forget what has ended long enough ago; return how much."""
        now = retention.now
        head = (
            now,
            retention.succeeded,
            retention.failures,
            retention.events,
            now - milliseconds(retention.succeeded_for),
            now - milliseconds(retention.cancelled_for),
            now - milliseconds(retention.events_for),
            now - milliseconds(retention.failures_for),
            now - milliseconds(retention.audit_for),
            oldest_hour(now, is_living=False),
            oldest_hour(now, is_living=True),
        )
        archived = b"".join(id_to_bytes(job.id) + job.version.to_bytes(4, "big") for job in retention.archived)
        counts = await self._write("prune", _encode(head), archived, bits(64).to_bytes(8, "big"))
        has_more_series = await self._roll_up_series(retention)
        lines = await self._write("prune_series", *series.prune_arguments(retention))
        pruned = Pruned(**dict(zip(_PRUNED, counts, strict=True)), series=lines)
        idle_since = now - milliseconds(IDLE_SECONDS)
        names, has_more = await self._write("forget_names", _encode((now, names_interval(pruned), idle_since)))
        return replace(pruned, names=names, has_more=bool(has_more) or has_more_series)

    async def _roll_up_series(self, retention: Retention) -> bool:
        """Add what was counted to the lines of series, or a part of it; return whether more is left."""
        most = series.MAX_DELTAS_PER_ROLL_UP
        roll_up = series.RollUp(await self.reads.run("read_series_deltas", most, most), retention)
        if not roll_up:
            return False
        found = await bounded_gather(self.reads.lines(one.step, one.subject, (one.at,)) for one in roll_up.buckets)
        stored = [{line.name: line.line for line in lines} for lines in found]
        # Overtaken by another client, which has added the same.
        await self._write("roll_up_series", *roll_up.arguments(stored))
        return roll_up.has_more

    async def wait(self, queues: Sequence[str], at_most: float, session: str) -> bool:
        """Wait for a notification since the session's last call; return whether one came."""
        view = self._sessions.get(session, SessionView())
        listener = self._connections.current().listener(self.tag)
        return await listener.wait(queues, view.last_notification, at_most)


def session_dead(session: str) -> SessionDead:
    """Return the error of a session that is not open, or dead."""
    return SessionDead(f"session {session!r} is not open, or dead: its lease is over, and its jobs belong to others")


def stale_call(session: str, number: int, last: int) -> StaleCall:
    """Return the error of a call that comes after a later one."""
    return StaleCall(f"call {number} of session {session!r} comes after call {last}")


def _use_holders(ids: list[str], taken: Sequence[Any], start: int = 0) -> None:
    """Replace ids of jobs whose unique key is taken by those of the jobs that have it."""
    for number, holder in pairs(taken):
        ids[start + number - 1] = id_from_bytes(holder)
