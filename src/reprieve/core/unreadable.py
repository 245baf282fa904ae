"""A job whose record cannot be read: what its store knows of it, with the raw bytes of the record as its payload.

The job keeps its place and is claimed like any other; the attempt ends at once, and the job is dead as `undecodable`.
"""

from typing import Final, NamedTuple

from msgspec.structs import replace

from reprieve.core.job import Cause, Job

MAX_WHY_CHARS: Final = 300
"""Characters that are kept of the reason why a record cannot be read."""

_MARK: Final = b"\xc1"
"""The first byte of such a payload. Neither UTF-8 nor msgpack begins with it, so no task reads it as arguments."""


class UnreadableRecord(NamedTuple):
    """The record of a job that cannot be read."""

    why: str
    raw: bytes

    @property
    def reason(self) -> str:
        """Why the job is dead."""
        return (
            f"its record cannot be read ({self.why}): it is damaged, or another release wrote it; "
            "its bytes are kept as its payload"
        )


def unreadable(known: Job, raw: bytes, why: str) -> Job:
    """Return the job of a record that cannot be read; `known` has what its store knows beside the record."""
    found = UnreadableRecord(" ".join(why.split())[:MAX_WHY_CHARS], raw)
    return replace(
        known,
        payload=b"\0".join((_MARK + found.why.encode(errors="replace"), raw)),
        cause=Cause(reason=found.reason, code="undecodable", kind="permanent", rule="undecodable"),
        death="undecodable" if known.state == "dead" else None,
    )


def is_unreadable(payload: bytes) -> bool:
    """Whether a payload holds the raw bytes of a record that cannot be read."""
    return payload.startswith(_MARK)


def unreadable_record(job: Job) -> UnreadableRecord | None:
    """Return the record of a job that cannot be read; None for all other jobs."""
    if not is_unreadable(job.payload):
        return None
    why, _, raw = job.payload[1:].partition(b"\0")
    return UnreadableRecord(why.decode(errors="replace"), raw)
