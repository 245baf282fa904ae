"""Limits, rates, weights and pauses in a schema; see `stores/sql/limits.py` for how."""

from collections import Counter
from collections.abc import Sequence

from reprieve.core.audit import Author
from reprieve.stores.postgres.lane_ref import hash_id
from reprieve.stores.postgres.leases import unpack_lease
from reprieve.stores.postgres.pool import Tx
from reprieve.stores.postgres.rows import array_of
from reprieve.stores.postgres.statements import statements
from reprieve.stores.protocol import LimitUpdate, Subject
from reprieve.stores.sql import limits
from reprieve.stores.sql.audit import record_audit


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
        row = {"id": tenant, "queue": self.queue(queue), "queue_name": queue, "name": name}
        self._tx.execute(self._sql["make_tenant"], row)
        return tenant

    def limiter(self, subject: Subject, name: str, dependency: str = "") -> int:
        limiter = hash_id("limiter", subject, name, *([dependency] if dependency else []))
        row = {"id": limiter, "subject": subject, "name": name, "dependency": dependency}
        is_new = self._tx.one(self._sql["make_limiter"], row) is not None
        if is_new and subject == "tenant_dependency":
            self._count_running([limiter])
        return limiter

    def make_pairs(self, dependency: str) -> None:
        self._count_running([pair for (pair,) in self._tx.all(self._sql["make_pairs"], {"scope": dependency})])

    def _count_running(self, pairs: Sequence[int]) -> None:
        """Count what runs of pairs of a tenant and a dependency, which no row has counted so far."""
        leases = (unpack_lease(jobs) for (jobs,) in self._tx.all(self._sql["leases"]))
        running = Counter(lane for lease in leases for lane, _ in lease.values())
        counts: Counter[int] = Counter()
        parameters = {"pairs": array_of(pairs), "lanes": array_of(running)}
        for lane, pair in self._tx.all(self._sql["lanes_of_pairs"], parameters):
            counts[pair] += running[lane]
        for pair, count in counts.items():
            self._tx.execute(self._sql["count_running"], {"id": pair, "running": count})


def update_limits(tx: Tx, updates: Sequence[LimitUpdate], now: int, author: Author) -> None:
    """Set limits, with the audit entries of a person. The caller holds the claim lock."""
    sql = statements("update_limits")
    for update in updates:
        record_audit(tx, statements("audit"), limits.audit_entries(tx, sql, update, now, author))
        limits.update_limits(tx, sql, _Rows(tx), update, now)
