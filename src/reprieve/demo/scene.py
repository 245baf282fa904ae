"""A scene: the state of the demo at one time, as plain values."""

from reprieve.core.record import Record

STATUSES = ("ready", "scheduled", "retrying", "parked", "running", "succeeded", "dead")
"""The statuses that are counted, in display order."""


class Scene(Record):
    """The state of the demo at one time."""

    seconds: float
    health: str
    gate: str
    calls: int
    """Calls that have reached the provider so far."""
    tenants: dict[str, dict[str, int]]
    """Jobs by tenant and status."""

    def count(self, status: str) -> int:
        """Return how many jobs of all tenants have this status."""
        return sum(counts.get(status, 0) for counts in self.tenants.values())


class Ending(Record):
    """The totals at the end, counted in the store and the provider."""

    jobs: int
    attempts: int
    calls: int
    succeeded: int
    retried: int
    """Jobs that failed and were tried again."""
    parked: int
    """Jobs that waited for the provider without using up an attempt."""
    dead: int
    came_back: int
    """Dead jobs that were retried manually and succeeded."""
    sent_again: int
    """Mails that were sent twice because the worker was killed before it could settle the job."""
    lost: int
    doubled: int
    """Mails that were sent twice without a crash."""
    seconds: float

    @property
    def is_good(self) -> bool:
        """Whether every job ended as expected."""
        return not (self.lost or self.doubled or self.dead) and self.came_back > 0
