"""Limits, rates, weights and pauses in a file; see `stores/sql/limits.py` for how."""

import sqlite3

from reprieve.stores.protocol import LimitUpdate, Subject
from reprieve.stores.sql import limits
from reprieve.stores.sqlite.lane_cache import limiter_of, queue_of, tenant_of
from reprieve.stores.sqlite.statements import statements
from reprieve.stores.sqlite.tx import SqliteTx


class _Rows:
    """The rows of queues, tenants and limiters."""

    def __init__(self, tx: sqlite3.Connection) -> None:
        self._tx = tx

    def queue(self, name: str) -> int:
        return queue_of(self._tx, name)

    def tenant(self, queue: str, name: str) -> int:
        return tenant_of(self._tx, queue_of(self._tx, queue), name)

    def limiter(self, subject: Subject, name: str) -> int:
        return limiter_of(self._tx, subject, name)


def update_limits(tx: sqlite3.Connection, update: LimitUpdate, now: int) -> None:
    """Set the limits of one queue, tenant, task, dependency or group."""
    limits.update_limits(SqliteTx(tx), statements("update_limits"), _Rows(tx), update, now)
