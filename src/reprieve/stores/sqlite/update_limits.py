"""Limits, rates, weights and pauses in a file; see `stores/sql/limits.py` for how."""

import sqlite3
from collections import Counter
from collections.abc import Sequence

import msgspec

from reprieve.core.audit import Author
from reprieve.stores.protocol import LimitUpdate, Subject
from reprieve.stores.sql import limits
from reprieve.stores.sql.audit import record_audit
from reprieve.stores.sqlite.lane_cache import limiter_of, queue_of, tenant_of
from reprieve.stores.sqlite.leases import unpack_lease
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

    def limiter(self, subject: Subject, name: str, dependency: str) -> int:
        limiter = limiter_of(self._tx, subject, name, dependency)
        if subject == "tenant_dependency":
            self._count_pairs("lanes_without_pair", {"tenant": name, "dependency": dependency})
        return limiter

    def make_pairs(self, dependency: str) -> None:
        self._tx.execute(statements("update_limits")["make_pairs"], {"scope": dependency})
        self._count_pairs("lanes_without_pairs", {"scope": dependency})

    def _count_pairs(self, statement: str, named: dict[str, str]) -> None:
        """Name limiters of pairs in the lanes that do not know them yet, and count these, and what runs of them."""
        tx, sql = self._tx, statements("update_limits")
        lanes = [lane for (lane,) in tx.execute(sql[statement], named)]
        if not lanes:
            return
        listed = (msgspec.json.encode(lanes).decode(),)
        tx.execute(sql["name_pairs"], listed)
        tx.execute(sql["count_lanes_of_pairs"], listed)
        leases = (unpack_lease(jobs) for (jobs,) in tx.execute(sql["leases"]))
        running = Counter(leased.lane for lease in leases for leased in lease.values())
        tx.executemany(sql["count_pair"], [(running[lane], lane) for lane in lanes if running[lane]])


def update_limits(tx: sqlite3.Connection, updates: Sequence[LimitUpdate], now: int, author: Author) -> None:
    """Set limits, with the audit entries of a person."""
    one, sql = SqliteTx(tx), statements("update_limits")
    for update in updates:
        record_audit(one, statements("audit"), limits.audit_entries(one, sql, update, now, author))
        limits.update_limits(one, sql, _Rows(tx), update, now)
