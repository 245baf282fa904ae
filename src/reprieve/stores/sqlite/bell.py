"""The bell: tells those who wait that something was written, by this process or by another.

Inside the process every transaction that changed anything rings; other processes are heard by an ear. What a session
hears is compared with what stood there before its last claim: something that happened between a claim and the wait
after it must not be missed, and what one session has heard is still news to another.
"""

import asyncio
import contextlib
import sqlite3
import threading
from pathlib import Path

from reprieve.errors import StoreClosed
from reprieve.stores.sqlite.ear import Ear
from reprieve.stores.sqlite.file import closed_on_error


class Bell:
    """Counts what happened, and wakes whoever waits for more."""

    def __init__(self, path: Path | None) -> None:
        """Listen to a file; None only to this process."""
        self._lock = threading.Lock()
        self._rung = 0
        self._waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()
        self._path = path
        self._counting = threading.Lock()
        """Held while the counter is read, and while this process forks."""
        self._counter: sqlite3.Connection | None = None
        self._ear: Ear | None = None
        if path is not None:
            self._take_hold(path)
        self._seen: dict[str, tuple[int, int]] = {}
        self._is_closed = False

    def ring(self) -> None:
        """Wake everybody who waits; called in the writer's thread."""
        with self._lock:
            self._rung += 1
        self._alert()

    def _alert(self) -> None:
        """Let those who wait look for themselves whether anything has happened."""
        with self._lock:
            for loop, event in self._waiting:
                with contextlib.suppress(RuntimeError):  # a loop that was closed while it waited
                    loop.call_soon_threadsafe(event.set)

    def look(self, session: str) -> None:
        """Remember what has happened so far: this session is about to look for work."""
        self._seen[session] = self._hear()

    def forget(self, session: str) -> None:
        """Forget a session that has ended."""
        self._seen.pop(session, None)

    async def wait(self, session: str, at_most: float) -> bool:
        """Wait until something happens that had not when the session looked; answer False when nothing did."""
        seen = self._seen.get(session) or self._hear()
        me = (asyncio.get_running_loop(), asyncio.Event())
        self._register(me)
        try:
            async with asyncio.timeout(at_most):
                await self._listen(seen, me[1])
        except TimeoutError:
            return False
        finally:
            self._register(me, is_leaving=True)
        return True

    def close(self) -> None:
        """Stop listening; whoever still waits is told."""
        with self._counting:
            self._is_closed = True
            self._let_go()
        self.ring()

    def pause(self) -> None:
        """Let go of the file until `resume`, so that a fork finds nothing open."""
        self._counting.acquire()
        self._let_go()

    def resume(self) -> None:
        """Listen again. What was heard before is forgotten, which rings once in vain."""
        if self._path is not None and not self._is_closed:
            self._take_hold(self._path)
        self._counting.release()
        self._alert()

    def leave(self) -> None:
        """Stay away from the file, in a fork: this bell belongs to the process that made it."""
        self._counting.release()

    def _take_hold(self, path: Path) -> None:
        counter = sqlite3.connect(path, check_same_thread=False)
        with closed_on_error(counter):
            ear = Ear(path, self._alert)
        with self._lock:
            self._counter, self._ear = counter, ear
            ear.want(is_wanted=bool(self._waiting))

    def _let_go(self) -> None:
        with self._lock:
            ear, self._ear = self._ear, None
        if ear is not None:
            ear.close()
        if self._counter is not None:
            self._counter.close()
            self._counter = None

    def _register(self, me: tuple[asyncio.AbstractEventLoop, asyncio.Event], *, is_leaving: bool = False) -> None:
        with self._lock:
            if is_leaving:
                self._waiting.discard(me)
            else:
                self._waiting.add(me)
            if self._ear is not None:
                self._ear.want(is_wanted=bool(self._waiting))

    async def _listen(self, seen: tuple[int, int], event: asyncio.Event) -> None:
        while self._hear() == seen:
            await event.wait()
            event.clear()

    def _hear(self) -> tuple[int, int]:
        with self._counting:
            if self._is_closed:
                raise StoreClosed
            commits = 0 if self._counter is None else self._counter.execute("pragma data_version").fetchone()[0]
            return self._rung, commits
