"""The index of tried jobs that are due later: by what jobs that wait for a retry, or are parked, are found."""

from typing import Final, NamedTuple

from reprieve.core.job import Job
from reprieve.stores.failure_names import code_of, fingerprint_of
from reprieve.stores.record import WAIT_NUMBERS


class TriedFields(NamedTuple):
    """What a row of `delayed` keeps of a job that was tried; nothing of others, so that they are in no index."""

    tenant: str | None = None
    task: str | None = None
    dependency: str | None = None
    code: str | None = None
    fingerprint: str | None = None


_UNTRIED: Final = TriedFields()


def tried_fields(job: Job, wait: int) -> TriedFields:
    """Return what is kept of a job that waits for this."""
    if wait <= WAIT_NUMBERS["schedule"]:
        return _UNTRIED
    return TriedFields(job.tenant, job.task, job.dependency, code_of(job) or None, fingerprint_of(job) or None)
