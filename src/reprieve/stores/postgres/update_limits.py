"""Limits, rates, weights and pauses in a schema; see `stores/sql/limits.py` for how."""

from reprieve.stores.postgres.lane_ref import hash_id
from reprieve.stores.postgres.pool import Tx
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

    def limiter(self, subject: Subject, name: str) -> int:
        limiter = hash_id("limiter", subject, name)
        self._tx.execute(self._sql["make_limiter"], {"id": limiter, "subject": subject, "name": name})
        return limiter


def update_limits(tx: Tx, update: LimitUpdate, now: int) -> None:
    """Set the limits of one queue, tenant, task, dependency or group. The caller holds the claim lock."""
    limits.update_limits(tx, statements("update_limits"), _Rows(tx), update, now)
