"""The bell: tells those who wait that something was written, by them or by another process.

Inside the process every commit rings. Other processes are heard by SQLite's own counter of foreign commits, which costs
microseconds to read and is read every two milliseconds while somebody waits, never otherwise.
"""

import asyncio
import sqlite3
import threading
from pathlib import Path

LISTEN_EVERY = 0.002


class Bell:
    """Counts what happened, and wakes whoever waits for more."""

    def __init__(self, path: Path | None) -> None:
        """Listen to a file; None only to this process."""
        self._path = path
        self._lock = threading.Lock()
        self._count = 0
        self._waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()
        self._heard = 0
        self._ears: sqlite3.Connection | None = None

    def ring(self) -> None:
        """Wake everybody who waits; called in the writer's thread."""
        with self._lock:
            self._count += 1
            waiting = list(self._waiting)
        for loop, event in waiting:
            try:
                loop.call_soon_threadsafe(event.set)
            except RuntimeError:  # its loop has ended meanwhile
                self._waiting.discard((loop, event))

    async def wait(self, at_most: float) -> bool:
        """Wait until the bell rings; answer False when it did not."""
        loop = asyncio.get_running_loop()
        event = asyncio.Event()
        with self._lock:
            self._waiting.add((loop, event))
        try:
            async with asyncio.timeout(at_most):
                if self._path is None:
                    await event.wait()
                else:
                    await self._listen(event)
        except TimeoutError:
            return False
        finally:
            with self._lock:
                self._waiting.discard((loop, event))
        return True

    def close(self) -> None:
        """Stop listening."""
        if self._ears is not None:
            self._ears.close()
            self._ears = None

    async def _listen(self, event: asyncio.Event) -> None:
        while not event.is_set():
            heard = self._foreign_commits()
            if heard != self._heard:
                self._heard = heard
                return
            try:
                async with asyncio.timeout(LISTEN_EVERY):
                    await event.wait()
            except TimeoutError:
                continue

    def _foreign_commits(self) -> int:
        if self._ears is None:
            self._ears = sqlite3.connect(f"file:{self._path}?mode=ro", uri=True, check_same_thread=False)
        return int(self._ears.execute("pragma data_version").fetchone()[0])
