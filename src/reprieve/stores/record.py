"""What the records of all stores have in common: the numbers of waits and states, and what a job has been through."""

import hashlib
from typing import Final

import msgspec
from msgspec.structs import replace

from reprieve.core.job import CancelRequest, Cause, Death, Job, Wait

WAITS: tuple[Wait, ...] = ("turn", "schedule", "retry", "gate", "budget")
"""What a job waits for, by the number that rows know it by."""

COUNTERS: Final = ("ready", "scheduled", "retrying", "parked", "parked")
"""The counter of a lane for each of them."""

NUMBERS: dict[Wait, int] = {wait: number for number, wait in enumerate(WAITS)}

WAITING, DEAD, CANCELLED = 0, 1, 2
STATES: Final = {DEAD: "dead", CANCELLED: "cancelled"}


class History(msgspec.Struct, array_like=True, frozen=True):
    """What a job has been through; a fresh one has none."""

    parked_since_at: int | None
    parked_on: str
    granted: int
    attempt: int
    charged: int
    spared: int
    crashes: int
    snoozes: int
    delay: float
    is_manual: bool
    cause: Cause | None
    failed_at: int | None
    death: Death | None
    finished_at: int | None


_FRESH = History(None, "", 0, 0, 0, 0, 0, 0, 0.0, False, None, None, None, None)  # noqa: FBT003 - a row, not a call


def history_of(job: Job) -> History | None:
    """Return what a job has been through; None if nothing."""
    history = History(
        job.parked_since_at,
        job.parked_on,
        job.granted,
        job.attempt,
        job.charged,
        job.spared,
        job.crashes,
        job.snoozes,
        job.delay,
        job.is_manual,
        job.cause,
        job.failed_at,
        job.death,
        job.finished_at,
    )
    return None if history == _FRESH else history


def remember(job: Job, past: History) -> Job:
    """Return the job with what it has been through; a lease that it has counts as one attempt more."""
    return replace(
        job,
        parked_since_at=past.parked_since_at,
        parked_on=past.parked_on,
        granted=past.granted,
        attempt=past.attempt + job.attempt,
        charged=past.charged,
        spared=past.spared,
        crashes=past.crashes,
        snoozes=past.snoozes,
        delay=past.delay,
        is_manual=past.is_manual,
        cause=past.cause,
        failed_at=past.failed_at,
        death=past.death,
        finished_at=past.finished_at,
    )


class Lease(msgspec.Struct, frozen=True):
    """Who holds a job, and since when."""

    session: str
    at: int
    cancel: CancelRequest | None = None


def lease_model(model: Job, lease: Lease) -> Job:
    """Return the model of leased jobs, which counts the lease as attempt and version, as `change.lease` does."""
    return replace(
        model,
        state="running",
        version=1,
        attempt=1,
        session=lease.session,
        leased_at=lease.at,
        cancel_request=lease.cancel,
    )


def key_of(job: Job) -> bytes:
    """Return the short form of a job's unique key."""
    return hashlib.blake2b(f"{job.task}\0{job.tenant}\0{job.key}".encode(), digest_size=16).digest()
