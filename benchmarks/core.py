"""What the core costs a job: `python -m benchmarks.core`."""

import smtplib
import statistics
import time
from collections.abc import Callable

from reprieve import presets
from reprieve.core import change
from reprieve.core.classify import TABLES, judge
from reprieve.core.decide import Conditions, decide
from reprieve.core.failure import read
from reprieve.core.gate import Gate
from reprieve.core.ids import make_id
from reprieve.core.job import Job
from reprieve.core.outcome import Failed, Succeeded

ROUNDS, CALLS = 5, 20_000
NOW = 1_760_000_000_000
GATE = Gate(dependency="ses")
GREYLISTED = smtplib.SMTPDataError(451, b"4.7.1 Greylisted, try again in 300 seconds")


def succeed() -> None:
    """Lease a job and settle its success."""
    job = Job(id=make_id(NOW, 7), task="send", dependency="ses", created_at=NOW, due_at=NOW)
    running = change.lease(job, "worker", NOW).job
    change.settle(running, decide(running, Succeeded(), presets.email, Conditions(now=NOW, u=0.5, gate=GATE)), NOW)


def fail() -> None:
    """Lease a job, read and classify its exception, decide, and settle its retry."""
    job = Job(id=make_id(NOW, 7), task="send", dependency="ses", created_at=NOW, due_at=NOW)
    running = change.lease(job, "worker", NOW).job
    failure = read(GREYLISTED, dependency="ses", now=NOW)
    outcome = Failed(failure=failure, verdict=judge(failure, TABLES))
    change.settle(running, decide(running, outcome, presets.email, Conditions(now=NOW, u=0.5, gate=GATE)), NOW)


def measure(work: Callable[[], None]) -> float:
    """Return microseconds of processor time for one call, the median of a few rounds."""
    costs = []
    for _ in range(ROUNDS):
        started = time.process_time()
        for _ in range(CALLS):
            work()
        costs.append((time.process_time() - started) / CALLS * 1e6)
    return statistics.median(costs)


def main() -> None:
    """Print what a success and a failure cost."""
    for name, work in (("job that succeeds", succeed), ("job that fails once", fail)):
        print(f"core  {name:<20} {measure(work):6.1f} µs")


if __name__ == "__main__":
    main()
