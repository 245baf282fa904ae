"""The names by which stores index and count failures: codes and fingerprints, as long as an index can hold."""

from reprieve.core.job import Job
from reprieve.core.values import MAX_NAME_CHARS


def code_of(job: Job) -> str:
    """Return the code of the last failure of a job; empty if it has none."""
    return "" if job.cause is None else job.cause.code[:MAX_NAME_CHARS]


def fingerprint_of(job: Job) -> str:
    """Return the fingerprint of the last failure of a job; empty if it has none."""
    return "" if job.cause is None else job.cause.fingerprint[:MAX_NAME_CHARS]
