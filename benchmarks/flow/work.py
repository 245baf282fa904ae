"""What the jobs of every side do, with nothing but the standard library: peers have environments of their own."""

import time

from benchmarks.flow.track import SECOND, Track

TASKS = ("nothing", "flaky", "prompt", "late", "slow")
SLOW_SECONDS = 5.0
"""How long a slow job takes, where a side has them."""

RETRY_AFTER = {"flaky": 0.005, "late": 1.0}
"""Those that fail, and the seconds after which they are to run again."""

MOST_ATTEMPTS = 3

_track = Track()
_failed: dict[object, int] = {}


def work(task: str, sent: int, job: object = None, *, is_first: bool = True) -> None:
    """Run one attempt.

    `nothing` does nothing, `flaky` fails at first, `prompt` writes down how long it took from before the enqueue to
    here, and `late` fails at first and writes down how much later than a second it came back.
    """
    now = time.monotonic_ns()
    _track.count()
    if task == "flaky" and is_first:
        raise ConnectionError
    if task == "late" and is_first:
        _failed[job] = time.monotonic_ns()
        raise ConnectionError
    if sent:
        _track.stamp(now - sent if task == "prompt" else now - _failed.pop(job) - SECOND)
