"""Prefetching: how many jobs a worker fetches before it has a slot for them, and where these jobs wait."""

from collections import deque
from collections.abc import Callable, Iterable

from reprieve.core.job import Job

PREFETCH_SECONDS = 0.1
"""Seconds of work that are fetched ahead."""

MAX_PREFETCHED_JOBS = 250
"""Jobs that are fetched ahead, and by one claim."""

MAX_WAIT_SECONDS = 1.0
"""Seconds that a prefetched job waits for a slot before it is given back to other workers."""

_NEWEST_WEIGHT = 1 / 16


class DurationEstimate:
    """How long an attempt takes here: raised by one slow attempt at once, lowered by fast ones slowly.

    Jobs that are fetched behind a slow job wait, so a wrong guess is cheaper on this side.
    """

    def __init__(self) -> None:
        """Begin without an estimate."""
        self._seconds: float | None = None

    def add(self, seconds: float) -> None:
        """Count one attempt in."""
        if self._seconds is None or seconds > self._seconds:
            self._seconds = seconds
        else:
            self._seconds += (seconds - self._seconds) * _NEWEST_WEIGHT

    def jobs_ahead(self, slots: int) -> int:
        """Return how many jobs to fetch ahead; 0 without an estimate."""
        if self._seconds is None:
            return 0
        return min(MAX_PREFETCHED_JOBS, int(slots * PREFETCH_SECONDS / max(self._seconds, 1e-6)))


class PrefetchBuffer:
    """The jobs that are leased to this session and wait for a slot, in the order of their claims."""

    def __init__(self) -> None:
        """Begin empty."""
        self._jobs: deque[tuple[float, Job]] = deque()

    def __len__(self) -> int:
        """Return how many jobs wait."""
        return len(self._jobs)

    def add(self, jobs: Iterable[Job], now: float) -> None:
        """Append the jobs of a claim."""
        self._jobs.extend((now, job) for job in jobs)

    def ids(self) -> set[str]:
        """Return the ids of the jobs that wait."""
        return {job.id for _, job in self._jobs}

    def first(self) -> Job:
        """Return the next job to start."""
        return self._jobs[0][1]

    def pop(self) -> Job:
        """Remove and return the next job to start."""
        return self._jobs.popleft()[1]

    def remove(self, is_wanted: Callable[[Job], bool]) -> list[Job]:
        """Remove and return the jobs that the function accepts, in their order."""
        removed = [job for _, job in self._jobs if is_wanted(job)]
        ids = {job.id for job in removed}
        self._jobs = deque(entry for entry in self._jobs if entry[1].id not in ids)
        return removed

    def stale(self, now: float) -> set[str]:
        """Return the ids of the jobs that have waited for more than `MAX_WAIT_SECONDS`."""
        return {job.id for since, job in self._jobs if now - since > MAX_WAIT_SECONDS}
