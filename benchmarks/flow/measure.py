"""The measures: each prepares a store in a folder of its own, lets real processes work, and returns its figures."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import cast

from benchmarks.flow.home import Home
from benchmarks.flow.side import Side
from benchmarks.flow.track import SECOND, counted, stamped
from benchmarks.flow.work import SLOW_SECONDS
from benchmarks.flow.worker import Pace, working

Found = dict[str, float | None]
"""Values by the names of their figures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much of everything. Whatever is measured by time ends by itself when its time is up."""

    backlog: int = 60_000
    paced: int = 300
    late: int = 200
    one: int = 3_000
    crowd: int = 40_000
    bulk: int = 200_000
    stored: int = 100_000
    waiting: int = 1_000_000
    tenants: int = 10_000
    beside: int = 100
    """Jobs of a small tenant beside a large one."""
    hog: int = 60_000
    """Fast jobs of the tenant that the others are beside."""
    slow: int = 3_000
    """The same, of 5 s each."""


QUICK = Sizes(
    backlog=3_000,
    paced=30,
    late=20,
    one=200,
    crowd=2_000,
    bulk=5_000,
    stored=5_000,
    waiting=20_000,
    tenants=500,
    beside=10,
    hog=3_000,
    slow=200,
)


def process(side: Side, sizes: Sizes, home: Home) -> Found:
    """Work off a backlog with one process, and with two."""
    one = _pace(side, home, "nothing", round(sizes.backlog * side.backlog))
    found: Found = {
        "process.one": one.rate,
        "process.cost": one.jobs_cost,
        "process.supervision": one.supervisor_cost,
    }
    if "two" not in side.lacks:
        two = _pace(side, home, "nothing", round(sizes.backlog * side.backlog), processes=2)
        found |= {"process.two": two.rate, "process.gain": two.rate / one.rate}
    return found


def fails(side: Side, sizes: Sizes, home: Home) -> Found:
    """Work off a backlog of jobs that fail once; each takes two attempts."""
    pace = _pace(side, home, "flaky", round(sizes.backlog / 2 * side.backlog), attempts=2)
    return {"fails.rate": pace.rate / 2, "fails.cost": None if pace.jobs_cost is None else pace.jobs_cost * 2}


def latency(side: Side, sizes: Sizes, home: Home) -> Found:
    """Enqueue a job every 20 ms for a worker with nothing else to do."""
    calls, stamps = _stamps(side, home, "prompt", sizes.paced)
    return {
        "latency.p50": percentile(stamps, 50),
        "latency.p99": percentile(stamps, 99),
        "latency.call": percentile(calls, 50),
    }


def retry(side: Side, sizes: Sizes, home: Home) -> Found:
    """Let jobs fail and come back a second later."""
    _, stamps = _stamps(side, home, "late", sizes.late)
    return {
        "retry.p50": percentile(stamps, 50),
        "retry.p99": percentile(stamps, 99),
        "retry.early": float(sum(stamp < 0 for stamp in stamps)),
    }


def enqueue(side: Side, sizes: Sizes, home: Home) -> Found:
    """Enqueue without a worker, each way in a new store."""
    crowd = sizes.crowd if side.backlog == 1 else sizes.one
    counts = {"one": sizes.one, "awaited": sizes.one, "crowd": crowd, "bulk": round(sizes.bulk * side.backlog)}
    found: Found = {}
    for word, count in counts.items():
        with home.empty() as place:
            found[f"enqueue.{word}"] = cast("float | None", side.ask(place, word, count=count))
    return found


def size(side: Side, sizes: Sizes, home: Home) -> Found:
    """Weigh a store full of waiting jobs."""
    count = round(sizes.stored * side.backlog)
    with home.empty() as place:
        side.ask(place, "fill", count=count)
        return {"size.bytes": place.weigh() / count}


def large(side: Side, sizes: Sizes, home: Home) -> Found:
    """Work on a large backlog, for many tenants, and with more processes than there is room for, against the usual."""
    if side.name != "reprieve":
        return {}
    usual = _pace(side, home, "nothing", sizes.backlog)
    waiting = _pace(side, home, "nothing", sizes.backlog, backlog=sizes.waiting)
    tenants = _pace(side, home, "nothing", sizes.backlog, tenants=sizes.tenants)
    processes = _pace(side, home, "nothing", sizes.backlog, processes=8)
    return {
        "large.waiting": waiting.rate / usual.rate,
        "large.tenants": tenants.rate / usual.rate,
        "large.processes": processes.rate / usual.rate,
    }


def tenants(side: Side, sizes: Sizes, home: Home) -> Found:
    """Work off backlogs of few and of many tenants, against ten."""
    if side.name != "reprieve":
        return {}
    ten = _pace(side, home, "nothing", sizes.backlog).rate
    found: Found = {
        f"tenants.{count}": _pace(side, home, "nothing", sizes.backlog, tenants=count).rate / ten
        for count in (1, 2, 100)
    }
    uneven = _pace(side, home, "nothing", sizes.backlog, tenants=1, beside=sizes.beside)
    return found | {"tenants.uneven": uneven.rate / ten}


def quiet(side: Side, sizes: Sizes, home: Home) -> Found:
    """Enqueue jobs of small tenants beside a tenant with a large backlog, for 50 slots."""
    if side.name != "reprieve":
        return {}
    wide = replace(side, environ=side.environ | {"REPRIEVE_SLOTS": str(QUIET_SLOTS)})
    fast = _waits(wide, sizes, home, "nothing", sizes.hog)
    slow = _waits(wide, sizes, home, "slow", sizes.slow)
    return {"quiet.fast": percentile(fast, 99), "quiet.slow": percentile(slow, 99)}


Measure = Callable[[Side, Sizes, Home], Found]
MEASURES: dict[str, Measure] = {
    "process": process,
    "fails": fails,
    "latency": latency,
    "retry": retry,
    "enqueue": enqueue,
    "size": size,
    "tenants": tenants,
    "quiet": quiet,
    "large": large,
}
EVERYDAY = tuple(name for name in MEASURES if name != "large")
"""What is measured unless told: the large ones take minutes."""

QUIET_SLOTS = 50


def percentile(values: Sequence[float], percent: int) -> float:
    """Return the smallest value that so many percent do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


def median(values: Sequence[float | None]) -> float | None:
    """Return the middle of what was found."""
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _pace(  # noqa: PLR0913 - the facts of one backlog
    side: Side,
    home: Home,
    task: str,
    count: int,
    *,
    backlog: int = 0,
    tenants: int = 10,
    processes: int = 1,
    attempts: int = 1,
    beside: int = 0,
) -> Pace:
    """Work on a backlog. One that is worked off to its end has run every attempt once, and none twice.

    `beside` jobs of it belong to two tenants in turn.
    """
    with home.empty() as place:
        side.ask(place, "fill", task=task, count=(backlog or count) - beside, tenants=tenants)
        if beside:
            side.ask(place, "fill", task=task, count=beside, tenants=2)
        with working(side, place, processes) as worker:
            pace = worker.pace(count * attempts)
            if worker.wait_until(lambda: counted(place.folder) >= (backlog or count) * attempts, 1.0):
                worker.wait_until(lambda: False, 0.2)
        ran, expected = counted(place.folder), (backlog or count) * attempts
        if ran > expected:
            message = f"{side.name} ran {ran} attempts of {expected}"
            raise AssertionError(message)
        return pace


def _stamps(side: Side, home: Home, task: str, count: int) -> tuple[list[float], list[float]]:
    """Pace jobs to an idle worker; return milliseconds of each call, and of each stamp."""
    with home.empty() as place:
        side.ask(place, "fill", task="nothing", count=1)
        with working(side, place) as worker:
            worker.wait_for(1)
            calls = cast("list[float]", side.ask(place, "pace", task=task, count=count))
            if not worker.wait_until(lambda: len(stamped(place.folder)) >= count, 30.0):
                message = f"{side.name} ran only {len(stamped(place.folder))} of {count} jobs"
                raise TimeoutError(message)
        return calls, [stamp / SECOND * 1e3 for stamp in stamped(place.folder)]


def _waits(side: Side, sizes: Sizes, home: Home, task: str, backlog: int) -> list[float]:
    """Pace jobs of small tenants to a worker that has a backlog of a large one; return the milliseconds they wait.

    The first of them only make the tenants known: a tenant that was alone for a minute has every slot.
    """
    with home.empty() as place:
        side.ask(place, "fill", task=task, count=backlog, tenants=1)
        with working(side, place) as worker:
            worker.wait_for(min(backlog, QUIET_SLOTS) // 2)
            side.ask(place, "pace", task="prompt", count=sizes.paced)
            if task == "slow":
                worker.wait_until(lambda: False, SLOW_SECONDS)
            before = len(stamped(place.folder))
            side.ask(place, "pace", task="prompt", count=sizes.paced)
            worker.wait_until(lambda: len(stamped(place.folder)) >= 2 * sizes.paced, 30.0)
        return [stamp / SECOND * 1e3 for stamp in stamped(place.folder)[max(before, sizes.paced) :]]
