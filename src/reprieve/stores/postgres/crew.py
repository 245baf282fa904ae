"""Threads that own connections: any event loop and any thread of the process hands them work.

The statements of a transaction go out together, and only who asks for a row waits for the server.
"""

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, Literal, TypeAlias, TypeVar

import psycopg

from reprieve.clock import ticks
from reprieve.errors import StoreClosed, StoreError
from reprieve.stores.postgres.address import READ, WRITE, Address
from reprieve.stores.postgres.faults import is_final, translate
from reprieve.stores.postgres.layout import prepare
from reprieve.stores.postgres.line import CHANGES, LOOKS, PATIENCE
from reprieve.stores.postgres.wire import Reply, Wire

T = TypeVar("T")

Point: TypeAlias = Literal["before", "after"]

ALONE: Final = ""
"""Work that is a single statement, which is a transaction by itself."""

HANDS = 8
"""Connections that work at the most. They are opened when they are needed."""

IDLE = 60.0
"""Seconds after which a connection that nobody needed is closed."""


class Tx:
    """A transaction: statements are sent at once, and answered when somebody asks."""

    def __init__(self, wire: Wire, *, is_alone: bool = False) -> None:
        """Take what it goes over; a statement that is alone is a transaction by itself."""
        self.line = wire.line
        self._wire = wire
        self.is_alone = is_alone
        self.on_commit: list[Callable[[], None]] = []
        """What to do once everything is stored."""

    def execute(self, statement: str, parameters: dict[str, Any] | None = None) -> Reply:
        """Send a statement."""
        reply = self._wire.send(statement, parameters)
        if self.is_alone:
            self._wire.finish()
        return reply

    def one(self, statement: str, parameters: dict[str, Any] | None = None) -> tuple[Any, ...] | None:
        """Return the first row."""
        return self.execute(statement, parameters).one()

    def all(self, statement: str, parameters: dict[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """Return all rows."""
        return self.execute(statement, parameters).all()


Work: TypeAlias = Callable[[Tx], T]


class Crew:
    """Does work in transactions, each on a connection of its own."""

    def __init__(self, address: Address) -> None:
        """Open nothing yet."""
        self._address = address
        self._process = os.getpid()
        self._threads = ThreadPoolExecutor(HANDS, "reprieve-postgres")
        self._lock = threading.Lock()
        self._preparing = threading.Lock()
        self._idle: list[tuple[float, Wire]] = []
        """Connections that nobody needs, and since when; the last is taken first, and the first needed least."""
        self._busy: set[Wire] = set()
        self._room = threading.Semaphore(HANDS)
        # Threads of the caller may wait for each other, and must not keep a session from beating meanwhile.
        self._room_of_callers = threading.Semaphore(HANDS // 2)
        self._is_closed = False
        self._is_over = False
        self._is_prepared = False
        self._fault: Point | None = None

    def submit(self, work: Work[T], mode: str = WRITE) -> Future[T]:
        """Have something done; the answer comes when it is durable."""
        self._require_usable()
        return self._threads.submit(self._attempt, work, mode)

    def here(self, work: Work[T], mode: str = WRITE) -> T:
        """Do something in the calling thread, which spares it the way to another."""
        self._require_usable()
        with self._room_of_callers:
            return self._attempt(work, mode)

    def _require_usable(self) -> None:
        if self._is_closed:
            raise StoreClosed
        if os.getpid() != self._process:
            message = "the store was opened before this process was forked; open it here again"
            raise StoreError(message)

    def inject(self, point: Point) -> None:
        """Make the next transaction that writes fail before or after its commit, as a crash or a lost reply would."""
        self._fault = point

    def prepare(self) -> None:
        """Bring the layout up to date, once."""
        with self._preparing:
            if not self._is_prepared:
                prepare(self._address)
                self._is_prepared = True

    def close(self) -> None:
        """Finish what was begun, if the server lets us, and hang up."""
        self._is_closed = True
        impatience = threading.Timer(PATIENCE, self._give_up)
        impatience.start()
        self._threads.shutdown()
        impatience.cancel()
        with self._lock:
            idle, self._idle = self._idle, []
        for _, wire in idle:
            wire.line.close()

    def _give_up(self) -> None:
        """Wait for no answer any more."""
        with self._lock:
            self._is_over = True
            for wire in self._busy:
                wire.line.patience = 0

    def _attempt(self, work: Work[T], mode: str) -> T:
        try:
            with self._room:
                return self._on_a_wire(work, mode)
        except Exception as error:
            translated = translate(error, self._address.shown)
            if translated is error:
                raise
            raise translated from error

    def _on_a_wire(self, work: Work[T], mode: str) -> T:
        wire = self._borrow(mode)
        try:
            return self._transact(wire, work, mode)
        except psycopg.Error as error:
            if is_final(error):
                wire.line.close()
            raise
        finally:
            self._give_back(wire)

    def _borrow(self, mode: str) -> Wire:
        wire = self._idle_one()
        if wire is None:
            self.prepare()
            wire = Wire(self._address.connect())
        with self._lock:
            if not self._is_over:
                wire.line.patience = LOOKS + PATIENCE if mode == READ else CHANGES
                self._busy.add(wire)
                return wire
        wire.line.close()
        message = "the store was closed before this was begun; open it again"
        raise StoreClosed(message)

    def _idle_one(self) -> Wire | None:
        with self._lock:
            while self._idle:
                _, wire = self._idle.pop()
                if not wire.line.closed:
                    return wire
        return None

    def _give_back(self, wire: Wire) -> None:
        now, spare = ticks(), []
        with self._lock:
            self._busy.discard(wire)
            if self._is_closed or not wire.is_idle():
                spare.append(wire)
            else:
                self._idle.append((now, wire))
            while self._idle and self._idle[0][0] + IDLE < now:
                spare.append(self._idle.pop(0)[1])
        for one in spare:
            one.line.close()

    def _transact(self, wire: Wire, work: Work[T], mode: str) -> T:
        fault = None
        if mode != READ:
            fault, self._fault = self._fault, None
        tx = Tx(wire, is_alone=mode == ALONE and not wire.line.is_pooled)
        try:
            answer = self._carry_out(wire, tx, work, mode, fault)
        except Exception:
            wire.abandon()
            raise
        except BaseException:
            # Whoever interrupts us does not wait for a server that keeps us waiting.
            wire.line.hang_up()
            raise
        for done in tx.on_commit:
            done()
        _fail("after", fault)
        return answer

    def _carry_out(self, wire: Wire, tx: Tx, work: Work[T], mode: str, fault: Point | None) -> T:
        wire.begin()
        if tx.is_alone:
            _fail("before", fault)
            answer = work(tx)
        else:
            for statement in self._address.opening(wire.line, mode or WRITE):
                wire.send(statement)
            answer = work(tx)
            _fail("before", fault)
            wire.send("commit")
            wire.finish()
        wire.end()
        return answer


def _fail(here: Point, wanted: Point | None) -> None:
    if here == wanted:
        message = f"the transaction failed {here} its commit, as it was told to"
        raise StoreError(message)
