"""The cause of a failure: what is stored of it with the job, and the group of failures that it belongs to."""

from typing import Final

from reprieve.core.failure import Failure
from reprieve.core.fingerprint import Fingerprint, fingerprint
from reprieve.core.job import Cause
from reprieve.core.redact import redact
from reprieve.core.text import clean, last_lines
from reprieve.core.verdict import Verdict

MAX_TRACEBACK_BYTES: Final = 2_048
"""Bytes of a traceback that are stored with a job."""

MAX_NAME_CHARS: Final = 200
"""Characters of the type of an exception, and of a rule, that are stored with a job."""


def cause_of(failure: Failure, verdict: Verdict, duration: float | None = None) -> Cause:
    """Return the cause that is stored with the job; `duration` is how many seconds the attempt took."""
    return Cause(
        # The stored text is shown in lists, logs and dashboards.
        reason=redact(_reason_of(failure)),
        code=verdict.code,
        kind=verdict.kind,
        fingerprint=fingerprint_of(failure).id,
        type=clean(failure.types[0], MAX_NAME_CHARS) if failure.types else "",
        rule=clean(verdict.rule, MAX_NAME_CHARS),
        scope=verdict.scope,
        duration=None if duration is None else round(duration, 6),
        traceback=last_lines(failure.traceback, MAX_TRACEBACK_BYTES),
    )


def fingerprint_of(failure: Failure) -> Fingerprint:
    """Return the group of failures that this one belongs to."""
    return fingerprint(_reason_of(failure), type=failure.type, code=failure.code, frames=failure.frames)


def _reason_of(failure: Failure) -> str:
    reason = clean(failure.message) or failure.type or "unknown error"
    # The message of a KeyError is only the key.
    return f"KeyError: {reason}" if failure.type == "KeyError" and failure.message else reason
