"""New jobs: one statement that only inserts, and can be part of any transaction."""

from collections.abc import Sequence
from typing import Any

from reprieve.core.duration import milliseconds
from reprieve.core.ids import created_at
from reprieve.core.job import Job
from reprieve.errors import InvalidId
from reprieve.stores.check import check_jobs
from reprieve.stores.postgres.crew import Tx
from reprieve.stores.postgres.rows import NUMBERS, is_id, key_of, pack, place_of_job
from reprieve.stores.postgres.statements import statements
from reprieve.stores.protocol import KEY_KEPT


def check(jobs: Sequence[Job], largest_payload: int) -> None:
    """Refuse what must not be stored, before anything is."""
    for job in jobs:
        if not is_id(job.id):
            message = f"{job.id[:80]!r} is not an id of this store; make ids with its new_id"
            raise InvalidId(message)
    check_jobs(jobs, largest_payload)


def statement(schema: str, *, is_own: bool) -> str:
    """Answer the statement that enqueues; in a transaction that is not our own it also tells the workers."""
    return statements("enqueue")["enqueue" if is_own else "enqueue_in"].replace("{schema}", schema)


def parameters(jobs: Sequence[Job], now: int) -> dict[str, Any]:
    """Answer the parameters of that statement: for each job what its row holds, then every shelf among them."""
    places = [place_of_job(job) for job in jobs]
    shelves = {place.shelf: place for place in places}.values()
    has_keys = any(job.key for job in jobs)
    return {
        "ids": [job.id for job in jobs],
        "places": [place.shelf for place in places],
        # A job that is due when it is made, and made by now, need not say when.
        "dues": [None if job.due_at == created_at(job.id) and job.due_at <= now else job.due_at for job in jobs],
        "versions": [job.version for job in jobs],
        "waits": [NUMBERS[job.waiting_for] for job in jobs],
        "recs": [pack(job) for job in jobs],
        "keys": [key_of(job) if job.key else None for job in jobs] if has_keys else None,
        "expiries": [now + milliseconds(KEY_KEPT if job.key_ttl is None else job.key_ttl) for job in jobs]
        if has_keys
        else None,
        "shelves": [place.shelf for place in shelves],
        "queues": [place.queue for place in shelves],
        "tenants": [place.tenant for place in shelves],
        "tasks": [place.task for place in shelves],
        "dependencies": [place.dependency for place in shelves],
        "groups": [place.group for place in shelves],
        "priorities": [place.priority for place in shelves],
        "now": now,
    }


def enqueue(tx: Tx, schema: str, jobs: Sequence[Job], now: int) -> list[str]:
    """Store new jobs, and answer the id under which each is known."""
    if not jobs:
        return []
    row = tx.one(statement(schema, is_own=True), parameters(jobs, now))
    return list(row[0]) if row else []
