"""A scene: what the audience sees at one moment, as plain values."""

from reprieve.core.record import Record

STATUSES = ("ready", "scheduled", "retrying", "parked", "running", "succeeded", "dead")
"""What is counted, in the order in which it is shown."""


class Scene(Record):
    """One moment of the demo."""

    seconds: float
    health: str
    gate: str
    calls: int
    """Calls that reached the provider, from the beginning."""
    tenants: dict[str, dict[str, int]]
    """Jobs by tenant and status."""

    def count(self, status: str) -> int:
        """Return how many jobs of all tenants stand so."""
        return sum(counts.get(status, 0) for counts in self.tenants.values())


class Ending(Record):
    """The figures at the end, counted and not assumed."""

    jobs: int
    attempts: int
    calls: int
    succeeded: int
    retried: int
    """Jobs that failed and were tried again."""
    parked: int
    """Jobs that waited for the provider without spending an attempt."""
    dead: int
    came_back: int
    """Dead jobs that a person retried, and that succeeded."""
    sent_again: int
    """Mails that came twice because the worker was killed before it could say that it had sent them."""
    lost: int
    doubled: int
    """Mails that came twice though nothing had gone wrong."""
    seconds: float

    @property
    def is_good(self) -> bool:
        """Whether every job ended as it should."""
        return not (self.lost or self.doubled or self.dead) and self.came_back > 0
