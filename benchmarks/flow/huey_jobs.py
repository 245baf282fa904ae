"""The jobs of huey, run by its own consumer in its own environment: nothing of ours is imported but the track.

`fsync=True` is `synchronous = FULL`, as our `durability="full"`. It is what huey leaves to SQLite when nothing is said,
which is FULL as well unless SQLite was built otherwise. `results=False` spares it a write that a no-op needs not.
"""

import os
import time
from typing import Any

from huey import SqliteHuey  # type: ignore[import-not-found]  # lives in the peer's environment alone

from benchmarks.flow.track import DATABASE, SECOND, Track, folder

DEFAULTS = "BENCH_DEFAULTS"
"""The variable that asks for huey as it comes."""

_settings: dict[str, Any] = {} if os.environ.get(DEFAULTS) else {"fsync": True, "results": False}
huey: Any = SqliteHuey(filename=str(folder() / DATABASE), **_settings)
track = Track()
_failed: dict[str, int] = {}


@huey.task()  # type: ignore[untyped-decorator]  # huey has no types
def nothing(sent: int, payload: str) -> None:  # noqa: ARG001 - all tasks take the same
    """Do nothing."""
    track.count()


@huey.task(retries=1, retry_delay=0, context=True)  # type: ignore[untyped-decorator]  # as above
def flaky(sent: int, payload: str, task: Any) -> None:  # noqa: ANN401, ARG001 - huey has no types
    """Fail once, then succeed. Without a delay: any would be rounded up to the scheduler's second."""
    track.count()
    if task.retries:
        raise ConnectionError


@huey.task()  # type: ignore[untyped-decorator]  # as above
def prompt(sent: int, payload: str) -> None:  # noqa: ARG001 - all tasks take the same
    """Write down how long it took from before the enqueue to here."""
    now = time.monotonic_ns()
    track.count()
    if sent:
        track.stamp(now - sent)


@huey.task(retries=1, retry_delay=1, context=True)  # type: ignore[untyped-decorator]  # as above
def late(sent: int, payload: str, task: Any) -> None:  # noqa: ANN401, ARG001 - huey has no types
    """Fail once, and write down how much later than a second the retry came."""
    now = time.monotonic_ns()
    track.count()
    if task.retries:
        _failed[task.id] = time.monotonic_ns()
        raise ConnectionError
    if sent:
        track.stamp(now - _failed.pop(task.id) - SECOND)
