"""When the waiting jobs of a lane expire, as the stores on SQL databases know it without an index of every job.

The fresh jobs of a lane mostly have the same time between their enqueue and their deadline, the *span* of the lane. So
they expire in the order in which the lane has them, and it is enough to know when to look at its first jobs. Every
other waiting job that can expire has a row of its own, by its time.
"""

from typing import Final

import msgspec

from reprieve.core.job import Job

SPAN_TOLERANCE_MS: Final = 1_000
"""By how much the time until a deadline may differ from that of the lane. A job is looked at so much later, at the
least: then it is past its deadline for certain."""

MAX_EXPIRING_LANES: Final = 100
"""Lanes that one call looks at."""

MAX_LEFTOVER_ROWS: Final = 1_000
"""Rows of jobs that do not wait which one call deletes: each costs a few microseconds."""

HELD_AGAIN_MS: Final = 10_000
"""After how long a job is looked at again that was parked for long enough while the gate of its dependency is open."""


class LaneSpan(msgspec.Struct, array_like=True, frozen=True):
    """What a lane knows of the deadlines of its fresh jobs."""

    lane: int
    ready: int
    span: int | None
    """Milliseconds after which they are past their deadline; None: none has had one."""
    swept_until: int
    """Jobs that became ready up to then were looked at."""
    expires_at: int | None
    """When to look at the next ones; None: there are none."""

    def with_jobs(self, jobs: list[tuple[int, int]]) -> tuple["LaneSpan", list[int]]:
        """Return the lane with new jobs, each as when it became ready and its deadline; and the numbers of the others.

        The others need rows of their own. A lane that has no ready jobs takes the span of the first new one.
        """
        span = self.span if self.ready else None
        first_at, others = None, []
        for number, (at, deadline_at) in enumerate(jobs):
            if span is None:
                span = deadline_at - at + SPAN_TOLERANCE_MS
            if at <= self.swept_until or not 0 <= span - (deadline_at - at) <= 2 * SPAN_TOLERANCE_MS:
                others.append(number)
            elif first_at is None or at < first_at:
                first_at = at
        expires_at = self.expires_at
        if first_at is not None and span is not None:
            expires_at = first_at + span if expires_at is None else min(expires_at, first_at + span)
        return LaneSpan(self.lane, self.ready, span, self.swept_until, expires_at), others


def look_again_at(job: Job, now: int) -> int:
    """Return when to look again at a job that was parked for long enough, but whose gate is open."""
    at = now + HELD_AGAIN_MS
    return at if job.deadline_at is None else min(at, job.deadline_at)
