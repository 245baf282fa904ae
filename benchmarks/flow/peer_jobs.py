"""What the jobs of every peer on PostgreSQL do: the same as ours, and nothing of a peer's is imported."""

import os
import time

from benchmarks.flow.track import SECOND, URL, Track

TASKS = ("nothing", "flaky", "prompt", "late")
track = Track()
_failed: dict[object, int] = {}


def url() -> str:
    """Answer the database of this measurement."""
    return os.environ[URL]


def run(task: str, job: object, attempt: int, sent: int) -> None:
    """Do what a task of this name does, in the first attempt or a later one."""
    now = time.monotonic_ns()
    track.count()
    if task == "prompt" and sent:
        track.stamp(now - sent)
    if task in ("flaky", "late") and attempt == 1:
        _failed[job] = time.monotonic_ns()
        raise ConnectionError
    failed = _failed.pop(job, 0)
    if task == "late" and sent:
        track.stamp(now - failed - SECOND)
