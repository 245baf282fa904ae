"""Limits, rates, weights and pauses in a schema; see `stores/sql/limits.py` for how."""

from collections import Counter

from reprieve.stores.postgres.lane_ref import hash_id
from reprieve.stores.postgres.leases import unpack_lease
from reprieve.stores.postgres.pool import Tx
from reprieve.stores.postgres.rows import array_of
from reprieve.stores.postgres.statements import statements
from reprieve.stores.protocol import LimitUpdate, Subject
from reprieve.stores.sql import limits


class _Rows:
    """The rows of queues, tenants and limiters, whose ids are made from their names."""

    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self._sql = statements("update_limits")

    def queue(self, name: str) -> int:
        queue = hash_id("queue", name)
        row = {"id": queue, "name": name, "limiter": self.limiter("queue", name)}
        self._tx.execute(self._sql["make_queue"], row)
        return queue

    def tenant(self, queue: str, name: str) -> int:
        tenant = hash_id("tenant", queue, name)
        self._tx.execute(self._sql["make_tenant"], {"id": tenant, "queue": self.queue(queue), "name": name})
        return tenant

    def limiter(self, subject: Subject, name: str, dependency: str = "") -> int:
        limiter = hash_id("limiter", subject, name, *([dependency] if dependency else []))
        row = {"id": limiter, "subject": subject, "name": name, "dependency": dependency}
        is_new = self._tx.one(self._sql["make_limiter"], row) is not None
        if is_new and subject == "tenant_dependency":
            self._tx.execute(self._sql["count_running"], {"id": limiter, "running": self._running(limiter)})
        return limiter

    def _running(self, pair: int) -> int:
        """Return how many jobs of a tenant and a dependency run, which no row has counted so far."""
        leases = (unpack_lease(jobs) for (jobs,) in self._tx.all(self._sql["leases"]))
        running = Counter(lane for lease in leases for lane, _ in lease.values())
        lanes = self._tx.all(self._sql["lanes_of_pair"], {"pair": pair, "lanes": array_of(running)})
        return sum(running[lane] for (lane,) in lanes)


def update_limits(tx: Tx, update: LimitUpdate, now: int) -> None:
    """Set the limits of one subject. The caller holds the claim lock."""
    limits.update_limits(tx, statements("update_limits"), _Rows(tx), update, now)
