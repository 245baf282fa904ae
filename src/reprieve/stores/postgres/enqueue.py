"""New jobs: one statement that only inserts, and can be part of any transaction."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import msgspec
from msgspec.json import encode

from reprieve.core.duration import milliseconds
from reprieve.core.ids import created_at
from reprieve.core.job import Job
from reprieve.stores.postgres.crew import Tx
from reprieve.stores.postgres.rows import Place, array_of, names_of, pack, place_of_job
from reprieve.stores.postgres.statements import statements
from reprieve.stores.protocol import KEY_RETENTION_SECONDS
from reprieve.stores.record import NUMBERS, key_of


class Lane(msgspec.Struct):
    """A lane that new jobs are put on, and the smallest and the largest of their ids."""

    place: Place
    low: str
    high: str

    def row(self) -> dict[str, object]:
        """Return it as the database reads it."""
        return names_of(self.place) | {"low": self.low, "high": self.high}


def statement(schema: str, *, is_own: bool) -> str:
    """Return the statement that enqueues; in a transaction that is not our own it also tells the workers."""
    return statements("enqueue")["enqueue" if is_own else "enqueue_in"].replace("{schema}", schema)


def parameters(jobs: Sequence[Job], now: int) -> dict[str, Any]:
    """Return the parameters of that statement, as the function in the database describes them."""
    places = [place_of_job(job) for job in jobs]
    recs = [pack(job) for job in jobs]
    lanes: dict[int, Lane] = {}
    for place, job in zip(places, jobs, strict=True):
        lane = lanes.get(place.lane)
        if lane is None:
            lanes[place.lane] = Lane(place, job.id, job.id)
        elif job.id > lane.high:
            lane.high = job.id
        elif job.id < lane.low:
            lane.low = job.id
    keyed = [number for number, job in enumerate(jobs, start=1) if job.key]
    lives = [jobs[number - 1].key_ttl for number in keyed]
    return {
        "ids": array_of(job.id for job in jobs),
        "places": array_of(place.lane for place in places),
        # A job that is due when it is made, and made by now, need not say when.
        "dues": array_of(
            None if job.due_at == created_at(job.id) and job.due_at <= now else job.due_at for job in jobs
        ),
        "versions": array_of(job.version for job in jobs),
        "waits": array_of(NUMBERS[job.waiting_for] for job in jobs),
        "starts": array_of(accumulate(map(len, recs[:-1]), initial=1)),
        "recs": b"".join(recs),
        "keyed": array_of(keyed),
        "keys": b"".join(key_of(jobs[number - 1]) for number in keyed),
        "expiries": array_of(now + milliseconds(KEY_RETENTION_SECONDS if life is None else life) for life in lives),
        "lanes": encode([lane.row() for lane in lanes.values()]).decode(),
        "now": now,
    }


def enqueue(tx: Tx, schema: str, jobs: Sequence[Job], now: int) -> list[str]:
    """Store new jobs, and answer the id under which each is known."""
    if not jobs:
        return []
    row = tx.one(statement(schema, is_own=True), parameters(jobs, now))
    return list(row[0]) if row else []
