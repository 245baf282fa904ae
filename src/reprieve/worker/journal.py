"""The journal: what a worker writes into its log, under names that do not change."""

import structlog

from reprieve.core.change import Change
from reprieve.core.job import Job
from reprieve.core.move import Cancel, Dead, Park, Retry
from reprieve.stores.protocol import Answer

log = structlog.get_logger("reprieve")


def note_settled(change: Change) -> None:
    """Note what became of an attempt that did not simply succeed."""
    move, job = change.event.move, change.job
    match move:
        case Retry():
            log.info("retry scheduled", **_facts(job), nextRetryDelay=(move.due_at - change.event.at) / 1_000)
        case Park():
            log.info("job parked", **_facts(job), gate=move.gate)
        case Dead():
            log.warning("job died", **_facts(job), death=move.death)
        case Cancel():
            log.info("job cancelled", **_facts(job), by=move.by, reason=move.reason)
        case _:
            pass


def note_recovered(change: Change) -> None:
    """Note that a job was taken back from a worker that is gone, and what became of it if that was its end."""
    log.warning("job recovered", **_facts(change.job), crashes=change.job.crashes)
    if change.job.state != "waiting":
        note_settled(change)


def note_refused(change: Change, answer: Answer) -> None:
    """Note a result that came too late: the job belongs to somebody else by now, or is gone."""
    log.warning("late result refused", **_facts(change.job), result=type(change.event.move).__name__, answer=answer)


def _facts(job: Job) -> dict[str, object]:
    cause = job.cause
    return {
        "jobId": job.id,
        "companyId": job.tenant,
        "task": job.task,
        "attempt": job.attempt,
        "maxAttempts": job.limit,
        "errorCode": cause.code if cause else "",
        "errorReason": cause.reason if cause else "",
        "isRetryable": job.state == "waiting",
    }
