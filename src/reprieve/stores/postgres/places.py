"""Lanes by their numbers, remembered; and the turn, in which what enqueues have added is counted.

A number is made from names, so what it stands for never changes.
"""

from collections.abc import Iterable
from typing import Final
from weakref import WeakKeyDictionary

import psycopg

from reprieve.clock import ticks
from reprieve.stores.postgres.crew import Tx
from reprieve.stores.postgres.rows import Place, array_of, number_of, place_of
from reprieve.stores.postgres.statements import statements
from reprieve.stores.postgres.wire import Reply

ANEW: Final = 30.0
"""Seconds after which everything is counted anew behind a pooler, where a connection survives the server."""

NOTHING: Final = "1:1:"
"""The snapshot in which no transaction has ended."""


class Turn:
    """A turn that was taken, or will have been when the server answers."""

    def __init__(self, reply: Reply) -> None:
        """Take what the server says to it."""
        self._reply = reply
        self._row: tuple[str | None] | None = None

    @property
    def counted(self) -> str | None:
        """The snapshot in which everything is counted; None if that was too much for one turn."""
        if self._row is None:
            self._row = self._reply.one() or (None,)
        return self._row[0]


class Places:
    """What this process knows of lanes, and up to where the ledger is counted."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._by_number: dict[int, Place] = {}
        # A server that takes over may give numbers of transactions a second time, but never on the same connection.
        self._counted: WeakKeyDictionary[psycopg.Connection, str] = WeakKeyDictionary()
        self._anew_at = ticks() + ANEW

    def take_turn(self, tx: Tx) -> "Turn":
        """Keep everybody else from claiming, settling and regulating until this transaction ends; count what came."""
        return self._remember(tx, tx.execute(statements("places")["take_turn"], {"since": self._since(tx)}))

    def begin_claim(self, tx: Tx, queues: Iterable[str], now: int, most: int) -> "Turn":
        """Take the turn, and promote what is due in these queues."""
        numbers = array_of(number_of("queue", queue) for queue in queues)
        wanted = {"since": self._since(tx), "queues": numbers, "now": now, "most": most}
        return self._remember(tx, tx.execute(statements("places")["begin_claim"], wanted))

    def _since(self, tx: Tx) -> str:
        """Return the snapshot in which everything is counted, as far as a connection knows."""
        if tx.line.is_pooled and ticks() >= self._anew_at:
            self._anew_at = ticks() + ANEW
            return NOTHING
        return self._counted.get(tx.line, NOTHING)

    def _remember(self, tx: Tx, reply: Reply) -> "Turn":
        turn = Turn(reply)

        def remember() -> None:
            if turn.counted is not None:
                self._counted[tx.line] = turn.counted

        tx.on_commit.append(remember)
        return turn

    def __getitem__(self, lane: int) -> Place:
        """Return a lane that was loaded."""
        return self._by_number[lane]

    def at(self, tx: Tx, lane: int) -> Place:
        """Return a lane, loaded if it must be."""
        if lane not in self._by_number:
            self.load(tx, (lane,))
        return self._by_number[lane]

    def load(self, tx: Tx, lanes: Iterable[int]) -> None:
        """Get to know lanes by their numbers."""
        missing = {lane for lane in lanes if lane not in self._by_number}
        for source in ("by_number", "unmade"):
            if missing:
                for lane, *names in tx.all(statements("places")[source], {"lanes": array_of(missing)}):
                    self._by_number[lane] = place_of(*names)
                    missing.discard(lane)
