"""The write batch: gathers what a number of changes writes, so that each table is written once."""

import sqlite3
from collections import Counter, defaultdict
from functools import cached_property
from typing import TypeAlias

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
from reprieve.stores.record import CANCELLED, DEAD, LANE_COUNTERS, WAIT_NUMBERS, WAITING
from reprieve.stores.sql.audit import record_audit
from reprieve.stores.sql.causes import CauseCounts
from reprieve.stores.sql.ended import indexed_fields
from reprieve.stores.sql.lanes import LaneRef
from reprieve.stores.sql.series import add_deltas
from reprieve.stores.sql.tried import tried_fields
from reprieve.stores.sqlite.annotations import cancel_requests
from reprieve.stores.sqlite.causes import write_causes
from reprieve.stores.sqlite.expiring import add_expiring
from reprieve.stores.sqlite.finished import keep
from reprieve.stores.sqlite.lane_cache import LaneCache
from reprieve.stores.sqlite.name_counts import count_names
from reprieve.stores.sqlite.rows import order_at, pack
from reprieve.stores.sqlite.statements import run, statements
from reprieve.stores.sqlite.tx import SqliteTx
from reprieve.stores.tallying import COUNTERS

_SILENT = (Start, Succeed)
"""Moves that leave no event, unless the job tells all: those of a job that succeeds at once."""


Released: TypeAlias = dict[int, Counter[int]]
"""Slots that tenants release, by queue and tenant."""


class WriteBatch:
    """What a batch of changes writes."""

    def __init__(self, tx: sqlite3.Connection, lanes: LaneCache, now: int) -> None:
        """Start empty."""
        self._tx = tx
        self._lanes = lanes
        self._now = now
        self.counts: dict[int, Counter[Status]] = defaultdict(Counter)
        """What is added to the counters of each lane."""
        self.released: Released = defaultdict(Counter)
        self.causes = CauseCounts()
        self._ran: list[int] = []
        self._ran_on: dict[int, int] = {}
        self._candidates: set[int] = set()
        """Tenants that have a ready job."""
        self._succeeded: dict[int, dict[int, Job]] = defaultdict(dict)
        self._rows: list[tuple[object, ...]] = []
        self._ready: list[tuple[int, int, int]] = []
        self._expiring: list[tuple[int, int]] = []
        self._delayed: list[tuple[object, ...]] = []
        self._ended: list[tuple[object, ...]] = []
        self._events: list[tuple[int, int, int, bytes]] = []
        self._results: list[tuple[int, int, bytes]] = []
        self._audit: list[AuditEntry] = []
        self._deltas: list[SeriesDelta] = []

    def add(self, ids: tuple[int, bytes], lane: int, change: Change, *, was_running: bool) -> None:
        """Add one change of a job that was on this lane, or leased from it; `ids` are the parts of its public id."""
        job = change.job
        row, middle = ids
        if was_running:
            self._ran.append(row)
            self._ran_on[lane] = self._ran_on.get(lane, 0) + 1
        self._add_event(row, change)
        if change.audit is not None:
            self._audit.append(change.audit)
        if isinstance(change.event.move, Retry | Park):
            self.causes.add_living(names_of(job), change.event.at, job.id)
        if change.result is not None:
            self._results.append((row, self._now + milliseconds(change.result_ttl), change.result))
        if was_running and job.state == "waiting" and (request := self._cancel_requests.get(row)) is not None:
            cancel = changes_of.give_up(change, request)
            if cancel is not None:
                self._add_event(row, cancel)
                job = cancel.job
        if job.state == "succeeded":
            self._succeeded[self._lanes.get(self._tx, lane).queue_id][row] = job
            return
        target = self._lanes.after(self._tx, lane, job)
        state = self._put_on_lane(row, target, job)
        wait = WAIT_NUMBERS[job.waiting_for]
        self._rows.append((row, target.id, state, job.version, wait, job.due_at, pack(job, row, middle)))

    @cached_property
    def _cancel_requests(self) -> dict[int, CancelRequest]:
        """The cancel requests for running jobs, read only when a job that ran would wait again."""
        return cancel_requests(self._tx)

    def _add_event(self, row: int, change: Change) -> None:
        event = change.event
        if type(event.move) not in _SILENT or change.job.tells_all:
            self._events.append((event.at, row, event.version, pack_event(event)))
            delta = delta_of(change)
            if delta is not None:
                self._deltas.append(delta)

    def _put_on_lane(self, row: int, lane: LaneRef, job: Job) -> int:
        """Add a job that has not succeeded to where it now belongs; return the number of its state."""
        if job.state in ("dead", "cancelled"):
            state = DEAD if job.state == "dead" else CANCELLED
            self.counts[lane.id][job.state] += 1
            at = job.finished_at or self._now
            fields = indexed_fields(job)
            self._ended.append((lane.queue_id, state, at, row, lane.id, *fields))
            if state == DEAD:
                self.causes.add_dead(fields.failure_names(), at)
            return state
        if job.expires_at is not None:
            self._expiring.append((job.expires_at, row))
        if job.due_at > self._now:
            wait = WAIT_NUMBERS[job.waiting_for] or WAIT_NUMBERS["schedule"]
            self._delayed.append((lane.queue_id, wait, job.due_at, row, lane.id, *tried_fields(job, wait)))
            self.counts[lane.id][LANE_COUNTERS[wait]] += 1
        else:
            self._ready.append((lane.id, order_at(job, row), row))
            self.counts[lane.id]["ready"] += 1
            self._candidates.add(lane.tenant_id)
        return WAITING

    def write(self) -> None:
        """Write everything that was added; the slots of tenants stay in `released`."""
        tx, sql, enqueue = self._tx, statements("settle"), statements("enqueue")
        for queue, jobs in self._succeeded.items():
            tx.execute(sql["delete_jobs"], (msgspec.json.encode(list(jobs)).decode(),))
            keep(tx, queue, jobs, self._now)
        run(tx, sql["rewrite"], self._rows)
        run(tx, enqueue["ready"], self._ready)
        run(tx, enqueue["delayed"], self._delayed)
        add_expiring(tx, self._expiring)
        run(tx, sql["end"], self._ended)
        write_causes(tx, self.causes)
        run(tx, sql["events"], self._events)
        run(tx, sql["results"], self._results)
        record_audit(SqliteTx(tx), statements("audit"), self._audit)
        add_deltas(SqliteTx(tx), statements("series"), self._deltas)
        run(tx, sql["count"], [(lane, *(count[name] for name in COUNTERS)) for lane, count in self.counts.items()])
        count_names(tx, self._lanes, self.counts)
        run(tx, sql["limiters"], list(self._release().items()))
        run(tx, enqueue["open"], [(lane,) for lane in {lane for lane, *_ in self._ready}])
        run(tx, enqueue["make_candidates"], [(tenant,) for tenant in self._candidates])
        if self._ran and tx.execute(sql["is_annotated"]).fetchone():
            tx.execute(sql["delete_annotations"], (msgspec.json.encode(self._ran).decode(),))

    def _release(self) -> Counter[int]:
        """Add the slots that tenants release to `released`; return those of the limiters."""
        sql = statements("settle")
        limiters: Counter[int] = Counter()
        queues: Counter[str] = Counter()
        for lane_id, count in self._ran_on.items():
            lane = self._lanes.get(self._tx, lane_id)
            self.released[lane.queue_id][lane.tenant_id] += count
            queues[lane.queue] += count
            for limiter in lane.limiters:
                limiters[limiter] += count
        has_pairs = False
        for queue, count in queues.items():
            of_queue, has_pairs = self._tx.execute(sql["queue_limiter"], (queue,)).fetchone()
            limiters[of_queue] += count
        if has_pairs:
            # A pair of a tenant and a dependency may get its limiter at any time, so the cache does not have it.
            lanes = msgspec.json.encode(list(self._ran_on)).decode()
            for lane_id, limiter in self._tx.execute(sql["pair_limiters"], (lanes,)):
                limiters[limiter] += self._ran_on[lane_id]
        return limiters
