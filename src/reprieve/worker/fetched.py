"""Fetched jobs: leased to this session, and waiting here for a slot."""

from collections import deque
from collections.abc import Callable, Iterable

from reprieve.core.job import Job

STALE_AFTER = 1.0
"""Seconds for which a fetched job may wait for a slot before it is given back to others."""


class Fetched:
    """The jobs that have not started, in the order in which they came."""

    def __init__(self) -> None:
        """Begin with none."""
        self._jobs: deque[tuple[float, Job]] = deque()

    def __len__(self) -> int:
        """How many wait."""
        return len(self._jobs)

    def add(self, jobs: Iterable[Job], now: float) -> None:
        """Take what a claim brought."""
        self._jobs.extend((now, job) for job in jobs)

    def first(self) -> Job:
        """Return whose turn it is."""
        return self._jobs[0][1]

    def start(self) -> Job:
        """Take out the first."""
        return self._jobs.popleft()[1]

    def take_out(self, is_meant: Callable[[Job], bool]) -> list[Job]:
        """Take out whatever is meant, in its order."""
        meant = [job for _, job in self._jobs if is_meant(job)]
        ids = {job.id for job in meant}
        self._jobs = deque(entry for entry in self._jobs if entry[1].id not in ids)
        return meant

    def stale(self, now: float) -> set[str]:
        """Return the ids of those that have waited for too long."""
        return {job.id for since, job in self._jobs if now - since > STALE_AFTER}
