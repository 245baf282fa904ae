"""The bell: tells those who wait that something happened in their queues, in this process or in another.

Inside the process it rings at once. Other processes are told by NOTIFY, from one thread, in transactions of their own
and only so often for each queue, since notifying transactions of a database commit one after the other. Nothing depends
on it: who hears nothing looks again after a while.
"""

import asyncio
import logging
import math
import os
import selectors
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress

import psycopg

from reprieve.clock import ticks
from reprieve.errors import StoreClosed, StoreUnreachable
from reprieve.rng import bits
from reprieve.stores.postgres.address import Address, is_pooled
from reprieve.stores.postgres.faults import translate
from reprieve.stores.postgres.line import PATIENCE
from reprieve.stores.postgres.statements import statements

log = logging.getLogger("reprieve")

SOON, LATER = 0.01, 0.1
"""Seconds between two notifications of one queue: of jobs that came, and of whatever else has changed."""

DEAF_LOOKS = 0.2
"""Seconds after which somebody who cannot listen looks again."""

FIRST_PAUSE, LONGEST_PAUSE = 0.2, 5.0
"""Seconds after which it is tried again to listen; each time twice as long."""

EVERYWHERE = ""
"""What happened concerns all queues."""


class Bell:
    """Counts what happened in each queue, and wakes whoever waits for more."""

    def __init__(self, address: Address) -> None:
        """Listen to nothing yet."""
        self._address = address
        self._me = f"{bits(64):016x}"
        self._lock = threading.Lock()
        self._tick = 0
        self._rung: dict[str, int] = {}
        self._waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()
        self._seen: dict[str, int] = {}
        self._due: dict[str, float] = {}
        """When other processes are to be told of a queue."""
        self._told: dict[str, float] = {}
        self._is_closed = False
        self._thread: threading.Thread | None = None
        self._is_deaf = True
        self._pause = FIRST_PAUSE
        self._tried = threading.Event()
        self._wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(self._wake_writer, False)

    @property
    def channel(self) -> str:
        """The name of the notifications."""
        return f"reprieve {self._address.schema[1:-1]}"

    @property
    def is_started(self) -> bool:
        """Whether it listens, or has tried to."""
        return self._tried.is_set()

    def start(self) -> None:
        """Begin to listen, once, and wait until it does."""
        with self._lock:
            self._begin()
        self._tried.wait()

    def ring(self, queues: Iterable[str], session: str = "", every: float = LATER) -> None:
        """Wake everybody who waits for one of the queues. For the session that rings it is no news."""
        with self._lock:
            self._begin()
            self._count(queues, session)
            now = ticks()
            soonest = min(self._due.values(), default=math.inf)
            for queue in queues:
                due = max(now, self._told.get(queue, 0.0) + every)
                self._due[queue] = min(due, self._due.get(queue, due))
            is_sooner = min(self._due.values(), default=math.inf) < soonest
        if is_sooner:
            self._wake()

    def look(self, session: str) -> None:
        """Remember what has happened so far: this session is about to look for work."""
        self._seen[session] = self._tick

    def forget(self, session: str) -> None:
        """Forget a session that has ended."""
        self._seen.pop(session, None)

    async def wait(self, queues: Sequence[str], session: str, at_most: float) -> bool:
        """Wait until something happens that had not when the session looked; answer False when nothing did."""
        seen = self._seen.get(session, self._tick)
        me = (asyncio.get_running_loop(), asyncio.Event())
        with self._lock:
            self._waiting.add(me)
        until = ticks() + at_most
        try:
            while not self._has_rung(queues, seen):
                left = until - ticks()
                if left <= 0:
                    return False
                try:
                    async with asyncio.timeout(min(left, DEAF_LOOKS) if self._is_deaf else left):
                        await me[1].wait()
                except TimeoutError:
                    if self._is_deaf and until > ticks():
                        return True
                me[1].clear()
        finally:
            with self._lock:
                self._waiting.discard(me)
        return True

    def close(self) -> None:
        """Stop listening; whoever still waits is told."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            self._count((EVERYWHERE,), "")
        self._wake()
        if self._thread is not None:
            # One that is stuck in a connection is left to itself, with its pipe.
            self._thread.join(PATIENCE)
        if self._thread is None or not self._thread.is_alive():
            os.close(self._wake_reader)
            os.close(self._wake_writer)

    def _has_rung(self, queues: Sequence[str], seen: int) -> bool:
        if self._is_closed:
            raise StoreClosed
        return any(self._rung.get(queue, 0) > seen for queue in (*queues, EVERYWHERE))

    def _count(self, queues: Iterable[str], session: str) -> None:
        is_up_to_date = self._seen.get(session) == self._tick
        self._tick += 1
        self._rung |= dict.fromkeys(queues, self._tick)
        if is_up_to_date:
            self._seen[session] = self._tick
        for loop, event in self._waiting:
            with suppress(RuntimeError):  # the loop was closed, and nobody waits any more
                loop.call_soon_threadsafe(event.set)

    def _begin(self) -> None:
        if self._thread is None and not self._is_closed:
            self._thread = threading.Thread(target=self._run, name="reprieve-bell", daemon=True)
            self._thread.start()

    def _wake(self) -> None:
        try:
            os.write(self._wake_writer, b"!")
        except BlockingIOError:  # full of calls that nobody has heard yet
            return

    def _run(self) -> None:
        while not self._is_closed:
            try:
                self._hear()
            except Exception as error:  # noqa: BLE001 - whatever it is, those who wait have to know, and it may pass
                self._go_deaf(error)

    def _hear(self) -> None:
        with self._address.listen() as ears:
            if not is_pooled(ears):
                ears.execute(statements("bell")["hurry"])
                ears.execute(statements("bell")["listen"].replace("{channel}", self.channel))
                self._hear_again()
            # Through a pooler nothing is heard, and others are told all the same.
            self._tried.set()
            self._pause = FIRST_PAUSE
            while not self._is_closed:
                self._listen(ears)

    def _go_deaf(self, error: Exception) -> None:
        self._is_deaf = True
        self._tried.set()
        if self._pause == FIRST_PAUSE and not self._is_closed:
            why = translate(error, self._address.shown)
            # A store that is away is logged by the worker; a server that only cannot be listened to is news.
            is_away = isinstance(why, StoreUnreachable) and not self._address.ears
            level = logging.DEBUG if is_away else logging.WARNING
            log.log(level, "cannot listen for notifications, polling every %g s instead: %s", DEAF_LOOKS, why)
        self._rest(self._pause, None)
        self._pause = min(2 * self._pause, LONGEST_PAUSE)

    def _hear_again(self) -> None:
        """What was missed while nobody listened counts as something that happened."""
        with self._lock:
            if self._tried.is_set():
                self._count((EVERYWHERE,), "")
            self._is_deaf = False
        self._tried.set()

    def _listen(self, ears: psycopg.Connection) -> None:
        """Hear what others say, and tell them what is due."""
        with self._lock:
            soonest = min(self._due.values(), default=None)
        self._rest(None if soonest is None else max(0.0, soonest - ticks()), ears)
        now = ticks()
        with self._lock:
            told = [queue for queue, at in self._due.items() if at <= now]
            for queue in told:
                del self._due[queue]
                self._told[queue] = now
        if told:
            payloads = [f"{self._me} {queue}" for queue in told]
            ears.execute(statements("bell")["tell"], {"channel": self.channel, "payloads": payloads})
        if self._is_deaf:
            return
        # After having told: what is said meanwhile has been read already, and nothing would wake us for it.
        for notice in ears.notifies(timeout=0):
            sender, _, queue = notice.payload.partition(" ")
            if sender != self._me:
                with self._lock:
                    self._count((queue,), "")

    def _rest(self, at_most: float | None, ears: psycopg.Connection | None) -> None:
        """Wait until somebody here rings, the server says something, or time is up."""
        # Unlike the others, this one needs no file of its own, and takes files of any number.
        with selectors.PollSelector() as sources:
            for source in (self._wake_reader,) if ears is None else (self._wake_reader, ears.fileno()):
                sources.register(source, selectors.EVENT_READ)
            ready = {key.fd for key, _ in sources.select(at_most)}
        if self._wake_reader in ready:
            os.read(self._wake_reader, 4_096)
