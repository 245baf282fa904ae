"""Enqueue: one statement that only inserts, and can be part of any transaction."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import msgspec
from msgspec.json import encode

from reprieve.core.duration import milliseconds
from reprieve.core.ids import created_at
from reprieve.core.job import Job
from reprieve.stores.event_record import pack_enqueued
from reprieve.stores.postgres.lane_ref import LaneRef, lane_of
from reprieve.stores.postgres.rows import array_of, pack
from reprieve.stores.postgres.statements import statements
from reprieve.stores.protocol import KEY_RETENTION_SECONDS
from reprieve.stores.record import WAIT_NUMBERS, key_of


class LaneIds(msgspec.Struct):
    """A lane that new jobs belong to, and the lowest and the highest of their ids."""

    ref: LaneRef
    lowest_id: str
    highest_id: str
    min_span: int | None = None
    """Milliseconds until the deadlines of its ready jobs, at least."""
    max_span: int | None = None

    def names(self) -> dict[str, object]:
        """Return them as the function in the database reads them from JSON."""
        names = self.ref.names() | {"lowest_id": self.lowest_id, "highest_id": self.highest_id}
        return names if self.min_span is None else names | {"min_span": self.min_span, "max_span": self.max_span}

    def add_span(self, span: int) -> None:
        """Add a ready job that has so many milliseconds until its deadline."""
        self.min_span = span if self.min_span is None else min(span, self.min_span)
        self.max_span = span if self.max_span is None else max(span, self.max_span)


def statement(schema: str, *, is_own: bool) -> str:
    """Return the statement that enqueues; in a caller's transaction it also notifies the workers."""
    return statements("enqueue")["enqueue" if is_own else "enqueue_in"].replace("{schema}", schema)


def parameters(jobs: Sequence[Job], now: int) -> dict[str, Any]:
    """Return the parameters of that statement, as functions/enqueue.sql describes them."""
    refs = [lane_of(job) for job in jobs]
    id_ats = [created_at(job.id) for job in jobs]
    records = [pack(job) for job in jobs]
    lanes: dict[int, LaneIds] = {}
    for ref, job, id_at in zip(refs, jobs, id_ats, strict=True):
        lane = lanes.get(ref.id)
        if lane is None:
            lane = lanes[ref.id] = LaneIds(ref, job.id, job.id)
        elif job.id > lane.highest_id:
            lane.highest_id = job.id
        elif job.id < lane.lowest_id:
            lane.lowest_id = job.id
        if job.deadline_at is not None and job.due_at <= now and job.sla_at is None:
            lane.add_span(job.deadline_at - id_at)
    expiring = [job for job in jobs if job.deadline_at is not None and (job.due_at > now or job.sla_at is not None)]
    has_headers = any(job.headers is not None for job in jobs)
    keyed = [number for number, job in enumerate(jobs, start=1) if job.key]
    ttls = [jobs[number - 1].key_ttl for number in keyed]
    return {
        "ids": array_of(job.id for job in jobs),
        "lanes": array_of(ref.id for ref in refs),
        # The id of a job tells when it is due, unless it is due later or its time lies ahead of the caller's clock.
        "due_ats": array_of(
            None if job.due_at == id_at and job.due_at <= now else job.due_at
            for job, id_at in zip(jobs, id_ats, strict=True)
        ),
        "sla_ats": array_of(job.sla_at for job in jobs if has_headers),
        "versions": array_of(job.version for job in jobs),
        "waiting_for": array_of(WAIT_NUMBERS[job.waiting_for] for job in jobs),
        "starts": array_of(accumulate(map(len, records[:-1]), initial=1)),
        "records": b"".join(records),
        "keyed": array_of(keyed),
        "keys": b"".join(key_of(jobs[number - 1]) for number in keyed),
        "key_expires_ats": array_of(now + milliseconds(KEY_RETENTION_SECONDS if ttl is None else ttl) for ttl in ttls),
        "lane_names": encode([lane.names() for lane in lanes.values()]).decode(),
        "now": now,
        "expiring_ats": array_of(job.deadline_at for job in expiring),
        "expiring_ids": array_of(job.id for job in expiring),
        "events": encode([_event(job) for job in jobs if job.tells_all]).decode() if has_headers else "[]",
    }


def _event(job: Job) -> dict[str, object]:
    """Return the event of an enqueue as the function in the database reads it from JSON."""
    return {"job": job.id, "at": job.created_at, "version": job.version, "data": pack_enqueued(job).hex()}
