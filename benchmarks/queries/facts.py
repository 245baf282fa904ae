"""What a filled store holds, and names in it that queries ask for."""

from reprieve.core.record import Record

TASKS = tuple(f"shop.jobs.task_{number:02}" for number in range(20))
QUEUES = ("mail", "import", "report", "sync")
DEPENDENCIES = ("ses", "crm", "warehouse", "tax", "")
CAUSES = 40
LANES_PER_TENANT = 4
JOBS_PER_TENANT = 100
DAY_MS = 86_400_000


class Sizes(Record):
    """How many jobs a store is filled with."""

    jobs: int = 1_000_000

    @property
    def tenants(self) -> int:
        """Ten thousand for a million jobs."""
        return max(10, self.jobs // JOBS_PER_TENANT)

    def count(self, share: float) -> int:
        """Return how many jobs a share of all is."""
        return round(self.jobs * share)


SHARES = {"dead": 0.10, "succeeded": 0.10, "cancelled": 0.01, "retrying": 0.02, "parked": 0.02, "scheduled": 0.05}
"""What becomes of the jobs; the others are ready."""


class Facts(Record):
    """Names that are in a store: what pages would ask for."""

    url: str
    started_at: int
    """When the oldest job was enqueued."""
    filled_at: int
    """When the newest one was; the time of every query is that or later."""
    tenant: str
    queue: str = QUEUES[0]
    task: str = TASKS[0]
    dependency: str = DEPENDENCIES[0]
    code: str = "code-07"
    fingerprint: str = "0000000000000007"
    fingerprints: tuple[str, ...] = tuple(f"{number:016x}" for number in range(CAUSES))
    ids: tuple[str, ...] = ()
    """Some jobs, the first of them dead."""
    key: str = ""
