"""Prefetching: how many jobs a worker fetches before it has a slot for them, and where these jobs wait."""

import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping

from reprieve.core.fairness.settings import DEFAULTS
from reprieve.core.job import Job

PREFETCH_SECONDS = 0.1
"""Seconds of work that are fetched ahead, besides that for the time of two claims."""

MAX_PREFETCHED_JOBS = 250
"""Jobs that are fetched ahead, and by one claim."""

MAX_PREFETCHED_JOBS_FAR = 1_000
"""The same where a claim takes long: jobs of as many milliseconds are needed until the next one returns."""

MAX_WAIT_SECONDS = 1.0
"""Seconds that a prefetched job waits for a slot, besides the time of two claims, before others get it."""

RATE_SECONDS, SAMPLE_SECONDS = 0.5, 0.01
"""Seconds over which ends of attempts are counted, at least, and between two samples of their number."""

MAX_CLAIM_SECONDS = 5.0
"""Seconds that a claim counts for at most: more is an outage, which says nothing about the next claim."""

_NEWEST_WEIGHT = 1 / 16
_NEWEST_CLAIM_WEIGHT = 1 / 2


class ClaimTime:
    """How long a claim takes: a server may be far away, or many sessions may claim at once."""

    def __init__(self) -> None:
        """Begin with a store that is near."""
        self.seconds = 0.0
        """Seconds from a claim to its result, on average, the last claims counting most."""

    def add(self, seconds: float) -> None:
        """Count one claim in."""
        self.seconds += (min(seconds, MAX_CLAIM_SECONDS) - self.seconds) * _NEWEST_CLAIM_WEIGHT

    @property
    def seconds_ahead(self) -> float:
        """For how many seconds of work jobs are fetched ahead."""
        return PREFETCH_SECONDS + 2 * self.seconds

    @property
    def max_jobs(self) -> int:
        """How many jobs to fetch ahead at most, and by one claim."""
        return min(MAX_PREFETCHED_JOBS_FAR, int(MAX_PREFETCHED_JOBS * max(1.0, self.seconds / PREFETCH_SECONDS)))


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

    def jobs_ahead(self, slots: int, claim: ClaimTime) -> int:
        """Return how many jobs to fetch ahead; 0 without an estimate.

        They keep the slots busy while a claim is under way, and what it brings does so during the next one.
        """
        if self._seconds is None:
            return 0
        return min(claim.max_jobs, int(slots * claim.seconds_ahead / max(self._seconds, 1e-6)))


def is_news(prefetch: int, announced: int, slots: int) -> bool:
    """Whether the store should know at once how many jobs are fetched ahead: it is far from what it was told."""
    return abs(prefetch - announced) > max(slots, announced // 2)


class EndRate:
    """How many attempts end in a second, of late. Where slow jobs keep most slots, fast ones end in the others."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._total = 0
        self._samples: deque[tuple[float, int]] = deque()
        """Moments, and how many attempts had ended by then."""

    def add(self) -> None:
        """Count one attempt that has ended."""
        self._total += 1

    def ended_in(self, seconds: float, now: float) -> float:
        """Return how many attempts end in so many seconds, by what ended in the last moment; at least half a second."""
        samples, since = self._samples, now - max(RATE_SECONDS, seconds)
        while len(samples) > 1 and samples[0][0] < since:
            samples.popleft()
        at, total = samples[0] if samples else (now, self._total)
        if not samples or now - samples[-1][0] >= SAMPLE_SECONDS:
            samples.append((now, self._total))
        return seconds * (self._total - total) / max(now - at, 1e-6)


class RecentTenants:
    """Which tenants were active in this worker a moment ago, as far as it matters: any other than a given one."""

    def __init__(self) -> None:
        """Begin with no tenant."""
        self._last: str | None = None
        self._last_at = self._other_at = -math.inf

    def note(self, tenant: str, now: float) -> None:
        """Note that a job of a tenant is started."""
        if tenant != self._last:
            self._last, self._other_at = tenant, self._last_at
        self._last_at = now

    def has_other(self, tenant: str, now: float) -> bool:
        """Whether a job of another tenant was started a moment ago."""
        at = self._other_at if tenant == self._last else self._last_at
        return now < at + DEFAULTS.activity_window_seconds


def max_running_per_tenant(slots: int) -> int:
    """Return how many slots of a worker one tenant may use while jobs of other tenants wait in it."""
    return max(1, int(slots * DEFAULTS.max_share_of_slots))


def max_running_beside_recent(slots: int) -> int:
    """Return the same for tenants that were active a moment ago: a tenth in whole slots, none of fewer than ten."""
    return math.ceil(slots * DEFAULTS.max_share_of_slots)


def count_out(counter: Counter[str], name: str) -> None:
    """Count one less; a name that counts nothing is forgotten."""
    counter[name] -= 1
    if not counter[name]:
        del counter[name]


class PrefetchBuffer:
    """The jobs that are leased to this session and wait for a slot, in the order of their claims."""

    def __init__(self) -> None:
        """Begin empty."""
        self._jobs: deque[tuple[float, Job]] = deque()
        self._tenants: Counter[str] = Counter()
        """How many of the jobs each tenant has."""

    def __len__(self) -> int:
        """Return how many jobs wait."""
        return len(self._jobs)

    def add(self, jobs: Iterable[Job], now: float) -> None:
        """Append the jobs of a claim."""
        for job in jobs:
            self._jobs.append((now, job))
            self._tenants[job.tenant] += 1

    def ids(self) -> set[str]:
        """Return the ids of the jobs that wait."""
        return {job.id for _, job in self._jobs}

    def next(self, running: Mapping[str, int], slots: int, has_other: Callable[[str], bool]) -> Job | None:
        """Return the next job to start, by how many jobs of each tenant run: the first of a tenant that may use a slot.

        The store counts jobs when they are leased, and cannot tell which of them run. So it is here that one tenant
        leaves a part of the slots to the others, while these wait here, or were active a moment ago (`has_other`). None
        if the jobs that wait are all of such a tenant.
        """
        first = self._jobs[0][1]
        most = max_running_per_tenant(slots)
        count = running.get(first.tenant, 0)
        if count < most:
            return first
        if len(self._tenants) > 1:
            for _, job in self._jobs:
                if running.get(job.tenant, 0) < most:
                    return job
        return first if count < max_running_beside_recent(slots) or not has_other(first.tenant) else None

    def take(self, job: Job) -> Job:
        """Remove and return a job."""
        index = next(index for index, (_, other) in enumerate(self._jobs) if other is job)
        del self._jobs[index]
        count_out(self._tenants, job.tenant)
        return job

    def remove(self, is_wanted: Callable[[Job], bool]) -> list[Job]:
        """Remove and return the jobs that the function accepts, in their order."""
        removed = [job for _, job in self._jobs if is_wanted(job)]
        ids = {job.id for job in removed}
        self._jobs = deque(entry for entry in self._jobs if entry[1].id not in ids)
        for job in removed:
            count_out(self._tenants, job.tenant)
        return removed

    def stale(self, now: float, claim: ClaimTime) -> set[str]:
        """Return the ids of the jobs that have waited for more than `MAX_WAIT_SECONDS` and the time of two claims."""
        longest = MAX_WAIT_SECONDS + 2 * claim.seconds
        return {job.id for since, job in self._jobs if now - since > longest}
