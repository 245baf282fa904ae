"""What changes set free: slots that a claim hands out again, and whatever else it must know of what it settled."""

from collections import Counter

from reprieve.stores.postgres.crew import Tx
from reprieve.stores.postgres.rows import Place, array_of
from reprieve.stores.postgres.statements import statements


class Freed:
    """Slots that tenants and limiters have back, the jobs that had them, and what else a claim must know of changes."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.tenants: Counter[int] = Counter()
        self.limiters: Counter[int] = Counter()
        self.jobs: list[str] = []
        self.has_wishes = True
        """Whether somebody may have asked a running job to stop."""
        self.is_moved = False
        """Whether jobs became ready, or are so no more."""
        self.counted: set[int] = set()
        """Lanes whose rows were written."""
        self.delayed: list[tuple[int, int]] = []
        """Queues, and when there is something due in them."""

    def add(self, place: Place, count: int) -> None:
        """Give back slots of a lane."""
        self.tenants[place.tenant_id] += count
        for limiter in (*place.limiters, place.queue_limiter):
            self.limiters[limiter] += count

    def is_within(self, other: "Freed") -> bool:
        """Whether all who have slots back are among those that another names."""
        return self.tenants.keys() <= other.tenants.keys() and self.limiters.keys() <= other.limiters.keys()

    def dues(self, queue: int) -> list[int]:
        """Return when there is something due in a queue."""
        return [due for number, due in self.delayed if number == queue]

    def forget(self) -> None:
        """Note that everything is written."""
        self.tenants.clear()
        self.limiters.clear()
        self.jobs.clear()

    def write(self, tx: Tx) -> None:
        """Write what was not written yet; whoever was at its limit may go on."""
        if not self.jobs:
            return
        row = {
            "tenants": array_of(self.tenants),
            "tenant_counts": array_of(self.tenants.values()),
            "limiters": array_of(self.limiters),
            "limiter_counts": array_of(self.limiters.values()),
            "jobs": array_of(self.jobs),
        }
        tx.execute(statements("settle")["release"], row)
        self.forget()
