"""The notifier: wakes waiters when something happened in their queues, in this process or in another.

Waiters of this process are woken at once. Other processes are notified by NOTIFY, from one thread, in transactions of
its own and only so often for each queue, since notifying transactions of a database commit one after the other. Nothing
depends on it: a worker that is not notified asks again after a while.
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
from reprieve.stores.postgres.connection import CONNECT_SECONDS
from reprieve.stores.postgres.error_mapping import translate
from reprieve.stores.postgres.statements import statements

log = logging.getLogger("reprieve")

ENQUEUE_INTERVAL_SECONDS, CHANGE_INTERVAL_SECONDS = 0.01, 0.1
"""Least seconds between two notifications of one queue: of new jobs, and of any other change."""

POLL_SECONDS = 0.2
"""Seconds after which a waiter asks again where the process cannot listen."""

FIRST_RETRY_SECONDS, MAX_RETRY_SECONDS = 0.2, 5.0
"""Seconds before the listener connects again; doubled after each failure."""

ALL_QUEUES = ""
"""The name under which something concerns all queues."""

MAX_KNOWN_QUEUES = 1_000
"""Queues whose notifications are told apart; beyond it, the next notification wakes the waiters of all."""


class Notifier:
    """Counts what happened in each queue, and wakes its waiters."""

    def __init__(self, address: Address) -> None:
        """Listen to nothing yet."""
        self._address = address
        self._sender = f"{bits(64):016x}"
        self._lock = threading.Lock()
        self._count = 0
        """Notifications so far."""
        self._last: dict[str, int] = {}
        """The number of the last notification of each queue."""
        self._waiters: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()
        self._seen: dict[str, int] = {}
        """How many notifications there were when each session last asked for work."""
        self._due: dict[str, float] = {}
        """When to notify other processes of a queue."""
        self._sent: dict[str, float] = {}
        self._is_closed = False
        self._thread: threading.Thread | None = None
        self._is_polling = True
        """Whether waiters must poll, because this process cannot listen."""
        self._retry_seconds = FIRST_RETRY_SECONDS
        self._tried = threading.Event()
        self._wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(self._wake_writer, False)

    @property
    def channel(self) -> str:
        """The channel of NOTIFY and LISTEN."""
        return f"reprieve {self._address.schema[1:-1]}"

    @property
    def is_started(self) -> bool:
        """Whether it listens, or has tried to."""
        return self._tried.is_set()

    def start(self) -> None:
        """Start to listen, once, and return when it does or cannot."""
        with self._lock:
            self._start_thread()
        self._tried.wait()

    def notify(self, queues: Iterable[str], session: str = "", every: float = CHANGE_INTERVAL_SECONDS) -> None:
        """Wake all waiters of these queues, here and elsewhere, but not the session that caused it."""
        with self._lock:
            self._start_thread()
            self._wake_waiters(queues, session)
            now = ticks()
            soonest = min(self._due.values(), default=math.inf)
            for queue in queues:
                due = max(now, self._sent.get(queue, 0.0) + every)
                self._due[queue] = min(due, self._due.get(queue, due))
            is_sooner = min(self._due.values(), default=math.inf) < soonest
        if is_sooner:
            self._wake_thread()

    def mark_seen(self, session: str) -> None:
        """Note that a session is about to ask for work: what happened so far is no news to it."""
        self._seen[session] = self._count

    def forget(self, session: str) -> None:
        """Forget a session that has ended."""
        self._seen.pop(session, None)

    async def wait(self, queues: Sequence[str], session: str, at_most: float) -> bool:
        """Wait until something happens that the session has not seen; return False when nothing did in time."""
        seen = self._seen.get(session, self._count)
        waiter = (asyncio.get_running_loop(), asyncio.Event())
        with self._lock:
            self._waiters.add(waiter)
        until = ticks() + at_most
        try:
            while not self._has_news(queues, seen):
                left = until - ticks()
                if left <= 0:
                    return False
                try:
                    async with asyncio.timeout(min(left, POLL_SECONDS) if self._is_polling else left):
                        await waiter[1].wait()
                except TimeoutError:
                    if self._is_polling and until > ticks():
                        return True
                waiter[1].clear()
        finally:
            with self._lock:
                self._waiters.discard(waiter)
        return True

    def close(self) -> None:
        """Stop listening; waiters raise StoreClosed."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            self._wake_waiters((ALL_QUEUES,), "")
        self._wake_thread()
        if self._thread is not None:
            # A thread that is stuck in a connection is left alone, with its pipe.
            self._thread.join(CONNECT_SECONDS)
        if self._thread is None or not self._thread.is_alive():
            os.close(self._wake_reader)
            os.close(self._wake_writer)

    def _has_news(self, queues: Sequence[str], seen: int) -> bool:
        if self._is_closed:
            raise StoreClosed
        return any(self._last.get(queue, 0) > seen for queue in (*queues, ALL_QUEUES))

    def _wake_waiters(self, queues: Iterable[str], session: str) -> None:
        is_up_to_date = self._seen.get(session) == self._count
        self._count += 1
        self._last |= dict.fromkeys(queues, self._count)
        if len(self._last) > MAX_KNOWN_QUEUES:
            self._last = {ALL_QUEUES: self._count}
        if is_up_to_date:
            self._seen[session] = self._count
        for loop, event in self._waiters:
            with suppress(RuntimeError):  # its loop was closed, and with it the waiter
                loop.call_soon_threadsafe(event.set)

    def _start_thread(self) -> None:
        if self._thread is None and not self._is_closed:
            self._thread = threading.Thread(target=self._run, name="reprieve-notifier", daemon=True)
            self._thread.start()

    def _wake_thread(self) -> None:
        try:
            os.write(self._wake_writer, b"!")
        except BlockingIOError:  # the pipe is full of wake-ups that the thread has yet to read
            return

    def _run(self) -> None:
        while not self._is_closed:
            try:
                self._listen()
            except Exception as error:  # noqa: BLE001 - whatever it is, waiters have to poll, and it may pass
                self._poll_instead(error)

    def _listen(self) -> None:
        with self._address.connect_listener() as listener:
            if not is_pooled(listener):
                listener.execute(statements("notifier")["no_flush"])
                listener.execute(statements("notifier")["listen"].replace("{channel}", self.channel))
                self._stop_polling()
            # Behind a pooler nothing is received, but other processes are notified all the same.
            self._tried.set()
            self._retry_seconds = FIRST_RETRY_SECONDS
            while not self._is_closed:
                self._exchange(listener)

    def _poll_instead(self, error: Exception) -> None:
        self._is_polling = True
        self._tried.set()
        if self._retry_seconds == FIRST_RETRY_SECONDS and not self._is_closed:
            why = translate(error, self._address.shown)
            # The worker logs a store that cannot be reached; a server that only the listener cannot reach is news.
            is_down = isinstance(why, StoreUnreachable) and not self._address.listen_conninfo
            level = logging.DEBUG if is_down else logging.WARNING
            log.log(level, "cannot listen for notifications, polling every %g s instead: %s", POLL_SECONDS, why)
        self._rest(self._retry_seconds, None)
        self._retry_seconds = min(2 * self._retry_seconds, MAX_RETRY_SECONDS)

    def _stop_polling(self) -> None:
        """Listen from here on. What was missed meanwhile counts as a notification of all queues."""
        with self._lock:
            if self._tried.is_set():
                self._wake_waiters((ALL_QUEUES,), "")
            self._is_polling = False
        self._tried.set()

    def _exchange(self, listener: psycopg.Connection) -> None:
        """Wait for notifications, send those that are due, and wake waiters for those that came."""
        with self._lock:
            soonest = min(self._due.values(), default=None)
        self._rest(None if soonest is None else max(0.0, soonest - ticks()), listener)
        now = ticks()
        with self._lock:
            queues = [queue for queue, at in self._due.items() if at <= now]
            for queue in queues:
                del self._due[queue]
                self._sent[queue] = now
            if len(self._sent) > MAX_KNOWN_QUEUES:
                self._sent.clear()
        if queues:
            payloads = [f"{self._sender} {queue}" for queue in queues]
            listener.execute(statements("notifier")["notify"], {"channel": self.channel, "payloads": payloads})
        if self._is_polling:
            return
        # After sending: what arrived meanwhile was read from the socket already, and would wake nothing.
        for notification in listener.notifies(timeout=0):
            sender, _, queue = notification.payload.partition(" ")
            if sender != self._sender:
                with self._lock:
                    self._wake_waiters((queue,), "")

    def _rest(self, at_most: float | None, listener: psycopg.Connection | None) -> None:
        """Wait until this process notifies, the server sends something, or the time is up."""
        # Unlike other selectors, this one needs no file descriptor of its own and takes any number.
        with selectors.PollSelector() as sources:
            for source in (self._wake_reader,) if listener is None else (self._wake_reader, listener.fileno()):
                sources.register(source, selectors.EVENT_READ)
            ready = {key.fd for key, _ in sources.select(at_most)}
        if self._wake_reader in ready:
            os.read(self._wake_reader, 4_096)
