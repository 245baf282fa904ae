"""The claim lock: its holder alone claims, settles and updates limits in a schema, until its transaction ends.

Acquiring it also counts what enqueues have added to lanes. The snapshot up to which everything is counted is
remembered, so that the next holder searches only what was committed since.
"""

from collections.abc import Iterable
from typing import Final
from weakref import WeakKeyDictionary

import psycopg

from reprieve.clock import ticks
from reprieve.stores.postgres.lane_ref import hash_id
from reprieve.stores.postgres.pipeline import Result
from reprieve.stores.postgres.pool import Tx
from reprieve.stores.postgres.rows import array_of
from reprieve.stores.postgres.statements import statements

RECOUNT_SECONDS: Final = 30.0
"""Seconds after which everything is counted again behind a pooler, where a connection survives its server."""

EMPTY_SNAPSHOT: Final = "1:1:"
"""The snapshot in which no transaction has ended."""


class Acquired:
    """The claim lock, acquired once the server has responded."""

    def __init__(self, result: Result) -> None:
        """Take the result of the statement that acquires it."""
        self._result = result
        self._row: tuple[str | None, ...] | None = None

    @property
    def snapshot(self) -> str | None:
        """The snapshot up to which all enqueues are counted; None while some are left to count."""
        if self._row is None:
            self._row = self._result.one() or (None,)
        return self._row[0]

    @property
    def is_all_counted(self) -> bool:
        """Whether all enqueues that were committed are counted."""
        return self.snapshot is not None


class ClaimLock:
    """The claim lock of a schema, as this process acquires it."""

    def __init__(self) -> None:
        """Know nothing to be counted."""
        # A server that takes over may use transaction ids again, but never on the same connection.
        self._counted: WeakKeyDictionary[psycopg.Connection, str] = WeakKeyDictionary()
        self._recount_at = ticks() + RECOUNT_SECONDS

    def acquire(self, tx: Tx) -> Acquired:
        """Acquire the claim lock until the transaction ends, and count what was enqueued."""
        result = tx.execute(statements("lanes")["acquire_claim_lock"], {"counted": self._counted_on(tx)})
        return self._remember(tx, result)

    def begin_claim(self, tx: Tx, queues: Iterable[str], now: int, max_promoted: int) -> Acquired:
        """Acquire the claim lock, and promote the due jobs of these queues."""
        request = {
            "counted": self._counted_on(tx),
            "queues": array_of(hash_id("queue", queue) for queue in queues),
            "now": now,
            "max_promoted": max_promoted,
        }
        return self._remember(tx, tx.execute(statements("lanes")["begin_claim"], request))

    def certainly_counted(self, tx: Tx) -> str:
        """Return a snapshot up to which everything is counted, for a transaction that does not acquire the lock."""
        return EMPTY_SNAPSHOT if tx.connection.is_pooled else self._counted.get(tx.connection, EMPTY_SNAPSHOT)

    def _counted_on(self, tx: Tx) -> str:
        """Return the snapshot up to which everything is counted, as far as a connection knows."""
        if tx.connection.is_pooled and ticks() >= self._recount_at:
            self._recount_at = ticks() + RECOUNT_SECONDS
            return EMPTY_SNAPSHOT
        return self._counted.get(tx.connection, EMPTY_SNAPSHOT)

    def _remember(self, tx: Tx, result: Result) -> Acquired:
        acquired = Acquired(result)
        tx.flushes_after_commit = True

        def remember() -> None:
            if acquired.snapshot is not None:
                self._counted[tx.connection] = acquired.snapshot

        tx.on_commit.append(remember)
        return acquired
