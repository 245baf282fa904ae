"""The portal: runs coroutines for code without an event loop, in one thread with one loop for each app."""

import asyncio
import contextlib
import os
import threading
import weakref
from collections.abc import Coroutine
from concurrent.futures import CancelledError
from typing import Any, TypeVar

from reprieve.errors import StoreClosed

T = TypeVar("T")

EXIT_SECONDS = 2.0
"""How long the exit of the interpreter waits at most until connections are closed."""


class Portal:
    """An event loop in a thread of its own. It starts when it is first used, and again after `close`."""

    def __init__(self) -> None:
        """Make a portal that is not started yet."""
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the portal's loop and return its result; raises `StoreClosed` if `close` cancels it."""
        with self._lock:
            loop = self._open()
            future = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            return future.result()
        except CancelledError:
            if self._loop is loop:
                raise
            message = "the app was closed during this call; call again to open it again"
            raise StoreClosed(message) from None
        except BaseException:
            # The caller was interrupted while it waited: the coroutine must not go on without it.
            future.cancel()
            raise

    def close(self) -> None:
        """End the loop and its thread. Coroutines that still run are cancelled: their callers raise `StoreClosed`."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
            if loop is not None:
                # Under the lock: a coroutine that was passed in before is a task by the time the loop stops.
                loop.call_soon_threadsafe(loop.stop)
        if thread is not None:
            thread.join()

    def _open(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=_serve, args=(self._loop,), name="reprieve-portal", daemon=True)
            self._thread.start()
            weakref.finalize(self, _end, self._loop, self._thread, os.getpid())
        return self._loop


def _end(loop: asyncio.AbstractEventLoop, thread: threading.Thread, pid: int) -> None:
    """End the loop of a portal that was not closed, when the interpreter exits: what it has open is closed first."""
    if os.getpid() == pid and thread.is_alive():
        with contextlib.suppress(RuntimeError):  # the loop was closed at this moment
            loop.call_soon_threadsafe(loop.stop)
        if thread is not threading.current_thread():
            thread.join(EXIT_SECONDS)


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        if left := asyncio.all_tasks(loop):
            for task in left:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
