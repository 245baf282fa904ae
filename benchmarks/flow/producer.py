"""A producer: enqueues for a measurement, in a process of its own, and prints what it found as JSON.

Both sides understand the same words; this module imports neither.
"""

import argparse
import json
import time
from typing import Protocol

from benchmarks.flow.track import SECOND

WARM_UP = 20
"""Calls before the first that counts."""

CALLERS = 100


class Producer(Protocol):
    """What a side can do. Tasks are `nothing`, `flaky`, `prompt` and `late`."""

    def versions(self) -> dict[str, str]:
        """Answer what is at work."""
        ...

    def fill(self, task: str, count: int, tenants: int) -> None:
        """Make a backlog, by the quickest way there is: nobody measures this."""
        ...

    def send(self, task: str, sent: int, tenant: int) -> None:
        """Enqueue one job, from code without a loop, and return when it is stored."""
        ...

    def crowd(self, count: int, callers: int) -> None:
        """Enqueue jobs one by one, so many callers at once."""
        ...

    def bulk(self, count: int) -> bool:
        """Enqueue jobs in bulk; answer False when there is no such thing."""
        ...


def main(producer: Producer) -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("word", choices=["versions", "fill", "one", "crowd", "bulk", "pace"])
    parser.add_argument("--task", default="nothing")
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--tenants", type=int, default=10)
    parser.add_argument("--every", type=float, default=0.02)
    wanted = parser.parse_args()
    count: int = wanted.count
    answer: object = None
    match wanted.word:
        case "versions":
            answer = producer.versions()
        case "fill":
            producer.fill(wanted.task, count, wanted.tenants)
        case "pace":
            answer = _pace(producer, wanted.task, count, wanted.every)
        case word:
            answer = _speed(producer, word, count)
    print(json.dumps(answer))


def _speed(producer: Producer, word: str, count: int) -> float | None:
    """Answer jobs per second."""
    for number in range(WARM_UP):
        producer.send("nothing", 0, number % 10)
    started = time.perf_counter()
    if word == "one":
        for number in range(count):
            producer.send("nothing", 0, number % 10)
    elif word == "crowd":
        producer.crowd(count, CALLERS)
    elif not producer.bulk(count):
        return None
    return count / (time.perf_counter() - started)


def _pace(producer: Producer, task: str, count: int, every: float) -> list[float]:
    """Enqueue a job every so many seconds; answer how many milliseconds each call took."""
    took = []
    begun = time.monotonic()
    for number in range(-WARM_UP, count):
        # Jobs of the warm-up carry no moment, and are not stamped.
        sent = time.monotonic_ns() if number >= 0 else 0
        producer.send(task, sent, number % 10)
        if sent:
            took.append((time.monotonic_ns() - sent) / SECOND * 1e3)
        due = begun + (number + WARM_UP + 1) * every
        time.sleep(max(0.0, due - time.monotonic()))  # noqa: TID251 - the pace is real
    return took
