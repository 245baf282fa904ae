"""The figures: what is measured, in which unit, and what we promise."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One number of the table."""

    name: str
    title: str
    unit: str
    better: Literal["more", "less"]
    target: float | None = None
    is_count: bool = False
    """Whether it counts what must not happen: runs are added up, and no median hides the one that it happened in."""

    @property
    def measure(self) -> str:
        """The measure that brings it."""
        return self.name.partition(".")[0]

    def is_met(self, value: float) -> bool | None:
        """Whether a value keeps the promise; None when there is none."""
        if self.target is None:
            return None
        return value >= self.target if self.better == "more" else value <= self.target

    def show(self, value: float | None) -> str:
        """Write a value with as many digits as mean something."""
        if value is None:
            return "–"
        digits = 0 if abs(value) >= 100 or value == int(value) else 1 if abs(value) >= 10 else 2
        return f"{value:,.{digits}f}"

    def show_target(self) -> str:
        """Write the promise."""
        if self.target is None:
            return ""
        return f"{'≥' if self.better == 'more' else '≤'} {self.show(self.target)}"


def _more(name: str, title: str, unit: str, target: float | None = None) -> Figure:
    return Figure(name=name, title=title, unit=unit, better="more", target=target)


def _less(name: str, title: str, unit: str, target: float | None = None) -> Figure:
    return Figure(name=name, title=title, unit=unit, better="less", target=target)


FIGURES = (
    _more("process.one", "process, one worker process", "jobs/s", 20_000),
    _less("process.cost", "– processor time of a job", "µs"),
    _less("process.supervision", "– and of its supervisor", "µs"),
    _more("process.two", "process, two worker processes", "jobs/s"),
    _more("process.gain", "– ratio to one", "×", 1.0),
    _more("fails.rate", "every job fails once", "jobs/s", 8_000),
    _less("fails.cost", "– processor time of a job", "µs"),
    _less("latency.p50", "enqueue to start, p50", "ms", 1),
    _less("latency.p99", "enqueue to start, p99", "ms", 5),
    _less("latency.call", "– of it the enqueue itself, p50", "ms"),
    _less("retry.p50", "1 s retry late, p50", "ms", 3),
    _less("retry.p99", "1 s retry late, p99", "ms", 5),
    Figure(name="retry.early", title="– retries that came early", unit="", better="less", target=0, is_count=True),
    _more("enqueue.one", "enqueue one by one", "jobs/s", 2_500),
    _more("enqueue.crowd", "enqueue, 100 callers at once", "jobs/s", 60_000),
    _more("enqueue.bulk", "enqueue in bulk", "jobs/s", 150_000),
    _less("size.bytes", "bytes of a queued job on disk", "B", 320),
    _more("large.waiting", "1,000,000 waiting, ratio to 60,000", "×", 0.75),
    _more("large.tenants", "10,000 tenants, ratio to 10", "×", 0.75),
)
"""In the order of the table."""

BY_NAME = {figure.name: figure for figure in FIGURES}
