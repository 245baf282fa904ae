"""The portal: lets code without an event loop use what is written for one. One thread, one loop, for one app."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Portal:
    """A loop in a thread of its own, started when it is first used."""

    def __init__(self) -> None:
        """Start nothing yet."""
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the portal's loop and wait for its end."""
        future = asyncio.run_coroutine_threadsafe(work, self._open())
        try:
            return future.result()
        except BaseException:
            # Whoever is interrupted while waiting must not leave the work running behind them.
            future.cancel()
            raise

    def close(self) -> None:
        """End the loop and its thread."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    def _open(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="reprieve-portal", daemon=True)
                self._thread.start()
            return self._loop
