"""What a worker counts of its attempts, for series: kept in memory, and handed over with its claims."""

from bisect import bisect_left
from typing import Final

from reprieve.clock import Clock, ticks
from reprieve.core.job import Job
from reprieve.core.series import (
    EDGES_MS,
    MINUTE_MS,
    NUMBERS,
    RETRY_CREDITS,
    RUN_FROM,
    SLOT_MS,
    STARTED,
    WAIT_FROM,
    Line,
    SeriesDelta,
    success_number,
)

MAX_INTERVAL_SECONDS: Final = 5.0
"""Seconds between two claims that hand over what was counted: a worker that is killed loses no more than that."""

MAX_NAMES: Final = 1_000
"""Combinations of queue, task, dependency and tenant after which it is handed over earlier."""


class AttemptCounts:
    """Counts starts, successes, waits and run times, by minute and by the names of the jobs."""

    def __init__(self, clock: Clock, interval: float = MAX_INTERVAL_SECONDS) -> None:
        """Begin with nothing; it is handed over every `interval` seconds, or more often."""
        self._clock = clock
        self._interval = min(interval, MAX_INTERVAL_SECONDS)
        self._due_at = ticks() + self._interval
        self._minute = 0
        self._counts: dict[tuple[str, str, str, str], list[int]] = {}
        """The numbers of the current minute, each at the place of its measure."""
        self._deltas: list[SeriesDelta] = []
        """Those of earlier minutes."""

    def __bool__(self) -> bool:
        """Whether anything was counted."""
        return bool(self._counts or self._deltas)

    def started(self, job: Job) -> None:
        """Count an attempt that starts, and how long its job was ready."""
        now = self._clock.now()
        numbers = self._numbers(job, now)
        numbers[STARTED] += 1
        numbers[WAIT_FROM + bisect_left(EDGES_MS, now - job.due_at)] += 1
        if job.attempt > 1 and job.headers is not None:
            numbers[RETRY_CREDITS] += job.headers.credits

    def ended(self, job: Job, seconds: float, *, has_succeeded: bool) -> None:
        """Count an attempt that has ended, and how long it had its slot."""
        took = seconds * 1_000
        numbers = self._numbers(job, self._clock.now())
        numbers[SLOT_MS] += int(took + 0.5)
        numbers[RUN_FROM + bisect_left(EDGES_MS, took)] += 1
        if has_succeeded:
            numbers[success_number(job.attempt)] += 1

    def is_due(self) -> bool:
        """Whether it is time to hand over what was counted."""
        return bool(self) and (ticks() >= self._due_at or len(self._counts) >= MAX_NAMES)

    def take(self) -> tuple[SeriesDelta, ...]:
        """Hand over everything that was counted, and begin anew."""
        self._end_minute()
        self._due_at = ticks() + self._interval
        taken, self._deltas = tuple(self._deltas), []
        return taken

    def _numbers(self, job: Job, now: int) -> list[int]:
        minute = now // MINUTE_MS
        if minute != self._minute:
            self._end_minute()
            self._minute = minute
        names = (job.queue, job.task, job.dependency, job.tenant)
        numbers = self._counts.get(names)
        if numbers is None:
            numbers = self._counts[names] = [0] * NUMBERS
        return numbers

    def _end_minute(self) -> None:
        for names, counts in self._counts.items():
            numbers: Line = {number: count for number, count in enumerate(counts) if count}
            self._deltas.append(SeriesDelta(self._minute, *names, numbers))
        self._counts.clear()
