"""Job logging: what a worker logs about jobs, under names that do not change."""

from datetime import UTC, datetime

import structlog

from reprieve.core.change import Change
from reprieve.core.events import Event
from reprieve.core.failure import Failure, class_name
from reprieve.core.job import Cause, Job
from reprieve.core.move import Cancel, Dead, Park, Retry
from reprieve.core.policy_error import Part
from reprieve.core.redact import redact
from reprieve.core.text import clean
from reprieve.stores.protocol import ChangeResult
from reprieve.worker import logs
from reprieve.worker.tracebacks import describe

log = structlog.get_logger("reprieve")


def log_started(job: Job) -> None:
    """Log the start of an attempt."""
    if logs.shows("debug"):
        log.debug("job started", **_names(job))


def log_succeeded(job: Job, seconds: float) -> None:
    """Log that an attempt succeeded, and how long it took."""
    if logs.shows("debug"):
        log.debug("job succeeded", **_names(job), durationMs=round(seconds * 1_000, 3))


def log_broken_policy(job: Job, part: Part, error: Exception) -> None:
    """Log that the rules or the backoff of a policy raised, so that the standard ones are used instead."""
    _log_bug("policy failed", job, error, part=part)


def log_undecided(job: Job, error: BaseException) -> None:
    """Log that the decision about an attempt failed, so that it counts as a failure under the standard policy."""
    _log_bug("job could not be judged", job, error)


def _log_bug(event: str, job: Job, error: BaseException, **facts: object) -> None:
    facts = {**_names(job), **facts, "errorType": class_name(type(error)), "errorReason": redact(clean(str(error)))}
    if logs.is_configured():
        log.error(event, **facts, traceback=describe(error))
    else:
        log.error(event, **facts, exc_info=error)


def log_settled(change: Change, failure: Failure | None = None, *, before: Job | None = None) -> None:
    """Log how an attempt was settled that did not succeed, and what it raised if it failed.

    `before` is the job as the attempt found it: it shows whether the attempt before failed in the same way.
    """
    move, job = change.event.move, change.job
    match move:
        case Retry():
            delay = move.due_at - change.event.at
            log.info("retry scheduled", **_facts(job), nextRetryDelay=delay, **_failed(change, before, failure))
        case Park():
            log.info("job parked", **_facts(job), gate=move.gate, **_wait(change), **_failed(change, before, failure))
        case Dead():
            log.warning("job died", **_facts(job), death=move.death, **_failed(change, before, failure))
        case Cancel():
            log.info("job cancelled", **_facts(job), by=move.by, reason=move.reason)
        case _:
            pass


def log_recovered(change: Change) -> None:
    """Log that a job was taken back from a worker that is gone, and how it was settled if it does not run again."""
    log.warning("job recovered", **_facts(change.job), crashes=change.job.crashes)
    if change.job.state != "waiting":
        log_settled(change)


def log_expired(job: Job) -> None:
    """Log that a job ended while it waited: its deadline has passed, or it was parked for too long."""
    move = Dead(death="expired", cause=job.cause or Cause(reason="expired"))
    event = Event(
        job_id=job.id, at=job.finished_at or 0, attempt=job.attempt, version=job.version, move=move, started_at=None
    )
    log_settled(Change(job=job, version=job.version - 1, event=event))


def log_lease_lost(job: Job) -> None:
    """Log that an attempt is ended because the store says that its session no longer holds the job."""
    log.warning("lease lost", **_names(job), reason="the session no longer holds the job, so its attempt is ended")


def log_refused(change: Change, result: ChangeResult) -> None:
    """Log a result that came too late: another session holds the job by now, or the job is gone."""
    log.warning("late result refused", **_facts(change.job), result=type(change.event.move).__name__, answer=result)


def log_leased_again(job: Job) -> None:
    """Log that the store has leased a job to the session that holds it already: the store was restored."""
    log.warning("job leased again", **_names(job))


def log_unknown_lease(job: Job) -> None:
    """Log that the session holds a job that it did not claim, and gives it back: the store was restored."""
    log.warning("unknown lease given back", **_names(job))


def _names(job: Job) -> dict[str, object]:
    return logs.job_fields(job)


def _failed(change: Change, before: Job | None, failure: Failure | None) -> dict[str, object]:
    """Return the fields of a failed attempt: if it is charged, its group, if it repeats, and its exception."""
    move, cause = change.event.move, change.job.cause
    facts: dict[str, object] = {
        "isCharged": isinstance(move, Retry | Park | Dead) and move.charged,
        "fingerprint": cause.fingerprint if cause else "",
        "repeatedAfter": _repeated_after(change, before),
    }
    if failure is not None:
        facts["errorType"] = failure.types[0] if failure.types else ""
        if failure.traceback and logs.shows_tracebacks():
            facts["traceback"] = failure.traceback
    return facts


def _repeated_after(change: Change, before: Job | None) -> float | None:
    """Return how many seconds ago the job failed in the same way; None if it did not since the worker started."""
    if before is None or before.cause is None or before.failed_at is None or change.job.cause is None:
        return None
    is_same = bool(before.cause.fingerprint) and before.cause.fingerprint == change.job.cause.fingerprint
    # A failure before the worker started is not in this log.
    if not is_same or before.failed_at < logs.started_at():
        return None
    return (change.event.at - before.failed_at) / 1_000


def _wait(change: Change) -> dict[str, object]:
    """Return in how many milliseconds a parked job is tried again, and since when its dependency does not respond."""
    job, at = change.job, change.event.at
    since_at = at if job.parked_since_at is None else job.parked_since_at
    return {
        "nextRetryDelay": job.due_at - at,
        "noAnswerSince": datetime.fromtimestamp(since_at / 1_000, UTC).isoformat(timespec="milliseconds"),
        "noAnswerFor": (at - since_at) / 1_000,
    }


def _facts(job: Job) -> dict[str, object]:
    cause = job.cause
    return {
        **_names(job),
        "maxAttempts": job.limit,
        "charged": job.charged,
        "spared": job.spared,
        "errorCode": cause.code if cause else "",
        "errorReason": cause.reason if cause else "",
        "isRetryable": job.state == "waiting",
    }
