"""What a batch of changes writes: collected change by change, then written table by table."""

from collections import Counter, defaultdict
from functools import cached_property

import msgspec

from reprieve.core import change as changes_of
from reprieve.core.audit import AuditEntry
from reprieve.core.change import Change
from reprieve.core.duration import milliseconds
from reprieve.core.job import CancelRequest, Job
from reprieve.core.move import Park, Retry, Start, Succeed
from reprieve.core.series import SeriesDelta, delta_of
from reprieve.core.status import Status
from reprieve.stores.causes import names_of
from reprieve.stores.event_record import pack_event
from reprieve.stores.postgres.annotations import cancels
from reprieve.stores.postgres.array_statements import run
from reprieve.stores.postgres.causes import write_causes
from reprieve.stores.postgres.finished import keep
from reprieve.stores.postgres.lane_cache import LaneCache
from reprieve.stores.postgres.lane_ref import LaneRef, lane_of
from reprieve.stores.postgres.name_counts import count_names
from reprieve.stores.postgres.pool import Tx
from reprieve.stores.postgres.released import ReleasedSlots
from reprieve.stores.postgres.rows import MAX_INT8, array_of, due_of, order_at, pack
from reprieve.stores.postgres.statements import statements
from reprieve.stores.record import CANCELLED, DEAD, LANE_COUNTERS, WAIT_NUMBERS, WAITING
from reprieve.stores.sql.audit import record_audit
from reprieve.stores.sql.causes import CauseCounts
from reprieve.stores.sql.ended import IndexedFields, indexed_fields
from reprieve.stores.sql.series import add_deltas
from reprieve.stores.sql.tried import tried_fields
from reprieve.stores.tallying import COUNTERS

_MAX_VERSION = (1 << 31) - 1
_MAX_TTL_MS = 1 << 53
_encode = msgspec.msgpack.Encoder().encode
_encode_json = msgspec.json.Encoder().encode


class Packed(msgspec.Struct, frozen=True):
    """A change as bytes: the record of the job, or the whole job if it succeeded; and the event, if it has one."""

    record: bytes
    event: bytes | None


def pack_change(change: Change) -> Packed | None:
    """Return a change as bytes; None when no row can hold it, so that it fails alone and no other change with it."""
    job = change.job
    if not 0 <= job.version <= _MAX_VERSION:
        return None
    try:
        if change.result is not None and milliseconds(change.result_ttl) > _MAX_TTL_MS:
            return None
        if type(change.event.move) is Succeed:
            return Packed(_encode(job), pack_event(change.event) if job.tells_all else None)
        record, event = pack(job), pack_event(change.event)
        cause = (job.cause.code, job.cause.fingerprint) if job.cause else ()
        texts = (job.death or "", *cause, job.queue, job.tenant, job.task, job.dependency, job.group)
        is_text = b"\0" not in "".join(texts).encode()
    except (OverflowError, TypeError, ValueError):
        return None
    numbers = (job.due_at, job.finished_at or 0, job.priority, change.event.at, change.event.version)
    if not is_text or not all(-MAX_INT8 <= number <= MAX_INT8 for number in numbers):
        return None
    is_silent = type(change.event.move) is Start and not job.tells_all
    return Packed(record, None if is_silent else event)


class WriteBatch:
    """What a batch of changes writes, collected so that each table is written once."""

    def __init__(self, tx: Tx, lanes: LaneCache, now: int, released: ReleasedSlots) -> None:
        """Begin with nothing; slots of jobs that ran are added to `released`."""
        self._tx = tx
        self._lanes = lanes
        self._now = now
        self._released = released
        self._counts: dict[int, Counter[Status]] = defaultdict(Counter)
        self.causes = CauseCounts()
        self._ready_watermarks: dict[int, int] = {}
        self._ran_on: Counter[int] = Counter()
        self._new_candidates: set[int] = set()
        self._new_lanes: dict[int, LaneRef] = {}
        self._succeeded: dict[int, list[tuple[str, bytes]]] = defaultdict(list)
        self._rows: list[tuple[object, ...]] = []
        self._ready: list[tuple[int, int, str]] = []
        self._delayed: list[tuple[object, ...]] = []
        self._expiring: list[tuple[int, str]] = []
        self._ended: list[tuple[object, ...]] = []
        self._events: list[tuple[int, str, int, bytes]] = []
        self._results: list[tuple[str, int, bytes]] = []
        self._audit: list[AuditEntry] = []
        self._deltas: list[SeriesDelta] = []
        self.no_longer_ready: list[tuple[int, int, str]] = []
        self.no_longer_delayed: list[tuple[int, int, int, str]] = []
        self.no_longer_expiring: list[tuple[int, str]] = []
        self.no_longer_ended: list[tuple[int, int, int, str]] = []

    def leave(self, lane: int, counter: Status) -> None:
        """Count a job that leaves where it was."""
        self._counts[lane][counter] -= 1
        self._released.has_moved_jobs = True

    def add(self, lane: int, change: Change, packed: Packed) -> None:
        """Add a change of a job that was found on a lane, or leased from it."""
        job = change.job
        if change.session:
            self._released.jobs.append(job.id)
            self._ran_on[lane] += 1
        if change.result is not None:
            self._results.append((job.id, self._now + milliseconds(change.result_ttl), change.result))
        if job.state == "succeeded":
            self._succeeded[self._lanes.get(self._tx, lane).queue_id].append((job.id, packed.record))
            self._add_event(change, packed)
            return
        self._add_event(change, packed)
        if change.audit is not None:
            self._audit.append(change.audit)
        if isinstance(change.event.move, Retry | Park):
            self.causes.add_living(names_of(job), change.event.at, job.id)
        if change.session and job.state == "waiting":
            change, packed = self._cancel_if_requested(change, packed)
            job = change.job
        new_lane = lane_of(job)
        if new_lane.id != lane:
            self._new_lanes[new_lane.id] = new_lane
            self._released.has_moved_jobs = True  # creating a lane writes its tenant and limiters as well
        state = self._put(new_lane, job)
        wait = WAIT_NUMBERS[job.waiting_for]
        self._rows.append((job.id, new_lane.id, due_of(job), job.sla_at, job.version, state, wait, packed.record))

    def _add_event(self, change: Change, packed: Packed) -> None:
        if packed.event is not None:
            self._events.append((change.event.at, change.job.id, change.event.version, packed.event))
            delta = delta_of(change)
            if delta is not None:
                self._deltas.append(delta)

    def _cancel_if_requested(self, change: Change, packed: Packed) -> tuple[Change, Packed]:
        """Cancel a job that would wait again, if its cancel was requested while it ran."""
        request = self._cancel_requests.get(change.job.id)
        cancel = None if request is None else changes_of.give_up(change, request)
        packed_cancel = None if cancel is None else pack_change(cancel)
        if cancel is None or packed_cancel is None:
            return change, packed
        self._add_event(cancel, packed_cancel)
        return cancel, packed_cancel

    @cached_property
    def _cancel_requests(self) -> dict[str, CancelRequest]:
        """The cancel requests of running jobs, read only when one of them would wait again."""
        return cancels(self._tx) if self._released.may_have_cancel_requests else {}

    def _put(self, lane: LaneRef, job: Job) -> int:
        """Add the rows that say where a job is now; return its state as a number."""
        count = self._counts[lane.id]
        if job.state in ("dead", "cancelled"):
            state = DEAD if job.state == "dead" else CANCELLED
            count[job.state] += 1
            ended_at = job.finished_at or self._now
            fields = indexed_fields(job)
            self._ended.append((lane.queue_id, state, ended_at, job.id, lane.id, *fields))
            if state == DEAD:
                self.causes.add_dead(fields.failure_names(), ended_at)
            return state
        if job.expires_at is not None:
            self._expiring.append((job.expires_at, job.id))
        if job.due_at > self._now:
            wait = WAIT_NUMBERS[job.waiting_for] or WAIT_NUMBERS["schedule"]
            place = (lane.queue_id, wait, job.due_at, job.id, lane.id, job.sla_at)
            self._delayed.append((*place, *tried_fields(job, wait)))
            self._released.delayed.append((lane.queue_id, job.due_at))
            count[LANE_COUNTERS[wait]] += 1
        else:
            at = order_at(job)
            self._ready.append((lane.id, at, job.id))
            self._released.has_moved_jobs = True
            count["ready"] += 1
            self._ready_watermarks[lane.id] = min(at, self._ready_watermarks.get(lane.id, MAX_INT8))
            self._new_candidates.add(lane.tenant_id)
        return WAITING

    def _remove_ended(self) -> None:
        """Take jobs that wait again from the index of ended jobs, and from the counts of their causes."""
        if self.no_longer_ended:
            removed = run(self._tx, statements("settle")["remove_ended"], self.no_longer_ended)
            for state, *fields in removed.all():
                if state == DEAD:
                    self.causes.remove_dead(IndexedFields(*fields).failure_names())

    def write(self) -> None:
        """Write everything but the slots."""
        tx, sql = self._tx, statements("settle")
        if self._new_lanes:
            names = [lane.names() for lane in self._new_lanes.values()]
            tx.execute(statements("lanes")["create"], {"lanes": _encode_json(names).decode()})
        for queue, jobs in self._succeeded.items():
            keep(tx, queue, jobs, self._now)
        self._remove_ended()
        for name, rows in (
            ("remove_ready", self.no_longer_ready),
            ("remove_delayed", self.no_longer_delayed),
            ("update_jobs", self._rows),
            ("add_ready", self._ready),
            ("add_delayed", self._delayed),
            ("add_ended", self._ended),
            ("add_events", self._events),
            ("add_results", self._results),
        ):
            if rows:
                run(tx, sql[name], rows)
        record_audit(tx, statements("audit"), self._audit)
        add_deltas(tx, statements("series"), self._deltas)
        write_causes(tx, self.causes)
        for name, expiring in (("remove", self.no_longer_expiring), ("add", self._expiring)):
            if expiring:
                run(tx, statements("expire")[name], expiring)
        if self._counts:
            counts = [
                {
                    "id": lane,
                    "ready_watermark": self._ready_watermarks.get(lane, MAX_INT8),
                    **{name: count[name] for name in COUNTERS},
                }
                for lane, count in self._counts.items()
            ]
            tx.execute(sql["count"], {"rows": _encode_json(counts).decode()})
            count_names(tx, self._lanes, self._counts)
            self._released.written_lanes.update(self._counts)
        if self._new_candidates:
            tx.execute(sql["add_candidates"], {"tenants": array_of(self._new_candidates)})
        self._lanes.load(tx, self._ran_on)
        for lane, count in self._ran_on.items():
            self._released.add(self._lanes[lane], count)
