"""The figures: what is measured, in which unit, and what we promise."""

from dataclasses import dataclass, replace
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


def _more(name: str, title: str, unit: str) -> Figure:
    return Figure(name=name, title=title, unit=unit, better="more")


def _less(name: str, title: str, unit: str) -> Figure:
    return Figure(name=name, title=title, unit=unit, better="less")


FIGURES = (
    _more("process.one", "process, one worker process", "jobs/s"),
    _less("process.cost", "– processor time of a job", "µs"),
    _less("process.supervision", "– and of its supervisor", "µs"),
    _more("process.two", "process, two worker processes", "jobs/s"),
    _more("process.gain", "– ratio to one", "×"),
    _more("fails.rate", "every job fails once", "jobs/s"),
    _less("fails.cost", "– processor time of a job", "µs"),
    _less("latency.p50", "enqueue to start, p50", "ms"),
    _less("latency.p99", "enqueue to start, p99", "ms"),
    _less("latency.call", "– of it the enqueue itself, p50", "ms"),
    _less("retry.p50", "1 s retry late, p50", "ms"),
    _less("retry.p99", "1 s retry late, p99", "ms"),
    Figure(name="retry.early", title="– retries that came early", unit="", better="less", is_count=True),
    _more("enqueue.one", "enqueue one by one", "jobs/s"),
    _more("enqueue.awaited", "enqueue one by one, in one coroutine", "jobs/s"),
    _more("enqueue.crowd", "enqueue, 100 callers at once", "jobs/s"),
    _more("enqueue.bulk", "enqueue in bulk", "jobs/s"),
    _less("size.bytes", "bytes of a queued job", "B"),
    _more("tenants.1", "one tenant, ratio to ten", "×"),
    _more("tenants.2", "two tenants, ratio to ten", "×"),
    _more("tenants.100", "100 tenants, ratio to ten", "×"),
    _more("tenants.uneven", "one large tenant beside a small one, ratio to ten", "×"),
    _less("quiet.fast", "small tenants beside 60,000 fast jobs, wait p99", "ms"),
    _less("quiet.slow", "– beside 3,000 jobs of 5 s, wait p99", "ms"),
    _more("large.waiting", "1,000,000 waiting, ratio to 60,000", "×"),
    _more("large.tenants", "10,000 tenants, ratio to 10", "×"),
    _more("large.processes", "eight worker processes, ratio to one", "×"),
)
"""In the order of the table."""

_FAIR = {
    "tenants.1": 0.75,
    "tenants.2": 0.75,
    "tenants.100": 0.75,
    "tenants.uneven": 0.75,
    "quiet.fast": 100,
    "quiet.slow": 250,
}

PROMISES: dict[str, dict[str, float]] = {
    "sqlite": {
        "process.one": 20_000,
        "process.gain": 1.0,
        "fails.rate": 8_000,
        "latency.p50": 1,
        "latency.p99": 5,
        "retry.p50": 3,
        "retry.p99": 5,
        "retry.early": 0,
        "enqueue.one": 2_500,
        "enqueue.crowd": 60_000,
        "enqueue.bulk": 150_000,
        "size.bytes": 320,
        **_FAIR,
        "large.waiting": 0.75,
        "large.tenants": 0.75,
        "large.processes": 0.8,
    },
    "postgres": {
        "process.one": 12_000,
        "process.gain": 1.0,
        "fails.rate": 6_000,
        "latency.p50": 2.5,
        "latency.p99": 10,
        "retry.p50": 3,
        "retry.p99": 15,
        "retry.early": 0,
        "enqueue.one": 2_000,
        "enqueue.crowd": 40_000,
        "enqueue.bulk": 100_000,
        "size.bytes": 400,
        **_FAIR,
        "large.waiting": 0.9,
        "large.tenants": 0.9,
        "large.processes": 0.8,
    },
    "redis": {
        "process.one": 20_000,
        "process.gain": 1.0,
        "fails.rate": 8_000,
        "latency.p50": 1.5,
        "latency.p99": 5,
        "retry.p50": 2,
        "retry.p99": 5,
        "retry.early": 0,
        "enqueue.one": 3_500,
        "enqueue.crowd": 50_000,
        "enqueue.bulk": 80_000,
        "size.bytes": 400,
        **_FAIR,
        "large.waiting": 0.75,
        "large.tenants": 0.75,
        "large.processes": 0.8,
    },
}
"""What we promise on each kind of store."""


def figures_on(home: str) -> dict[str, Figure]:
    """Return the figures by their names, with what we promise on this kind of store."""
    return {figure.name: replace(figure, target=PROMISES[home].get(figure.name)) for figure in FIGURES}
