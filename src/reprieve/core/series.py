"""Series: how often what happened, in steps of time, for each queue, task, dependency and tenant.

Workers and stores write deltas: what happened in one minute to the jobs of one queue, task, dependency and tenant. A
roll-up adds deltas to lines: the numbers of one name in one bucket of time. Buckets are those of UTC.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Literal, NamedTuple, TypeAlias, assert_never, get_args

import msgspec

from reprieve.core.change import Change
from reprieve.core.move import Cancel, Dead, Enqueue, ManualRetry, Park, Retry, Return, Revive, Snooze, Start, Succeed
from reprieve.core.record import Record

Step: TypeAlias = Literal["minute", "ten_minutes", "hour"]
SeriesSubject: TypeAlias = Literal["all", "queue", "task", "dependency", "tenant"]
"""What has lines. `all` has one line, with an empty name: that of the whole store."""

Counter: TypeAlias = Literal[
    "enqueued",
    "started",
    "succeeded_1",
    "succeeded_2",
    "succeeded_3",
    "succeeded_4",
    "retried",
    "parked",
    "spared",
    "recovered",
    "snoozed",
    "manually_retried",
    "cancelled",
    "revived",
    "retry_credits",
    "slot_ms",
]
"""What is counted. `succeeded_1` to `succeeded_3`: jobs that succeeded at that attempt, `succeeded_4`: at a later one.
`spared`: failures that did not use up an attempt, of those that were retried, parked or ended the job. `recovered`:
jobs taken back from a worker that died. `retry_credits`: the credits of jobs that were started again. `slot_ms`:
milliseconds for which attempts had a slot, counted when they end."""

Measure: TypeAlias = Literal["died", "wait", "run"] | Counter
"""What a line has: counters, deaths by code, and histograms of the milliseconds from ready to start and of attempts."""

STEPS: Final[tuple[Step, ...]] = get_args(Step)
SUBJECTS: Final[tuple[SeriesSubject, ...]] = get_args(SeriesSubject)
COUNTERS: Final[tuple[Counter, ...]] = get_args(Counter)
MEASURES: Final[frozenset[Measure]] = frozenset({"died", "wait", "run", *COUNTERS})

MINUTE_MS: Final = 60_000
STEP_MS: Final[Mapping[Step, int]] = {"minute": MINUTE_MS, "ten_minutes": 10 * MINUTE_MS, "hour": 60 * MINUTE_MS}
MAX_KEPT_SECONDS: Final[Mapping[Step, float]] = {
    "minute": 86_400.0,
    "ten_minutes": 14 * 86_400.0,
    "hour": 400 * 86_400.0,
}
"""How long the buckets of a step are kept at most."""

MAX_LINES: Final[Mapping[SeriesSubject, int]] = {"all": 1, "queue": 200, "task": 200, "dependency": 200, "tenant": 50}
"""Names that have a line of their own in one bucket; the others are summed in the line named `OTHERS`."""

MAX_CODES: Final = 50
"""Codes of deaths that one line tells apart; the others count as `OTHERS`."""

OTHERS: Final = "\x1fothers"
"""The name of the line with the sums of all other names. No job has it: names are printable."""

EDGES_MS: Final = tuple(digit * 10**power for power in range(8) for digit in (1, 2, 5))
"""The edges of both histograms, in milliseconds: a bucket counts what is at most its edge, one more all above."""

HISTOGRAM_BUCKETS: Final = len(EDGES_MS) + 1
WAIT_FROM: Final = 32
RUN_FROM: Final = 64
NUMBERS: Final = 96
"""The numbers of measures in a line are below this: counters in their order, then the buckets of both histograms."""

ENQUEUED, STARTED, SUCCEEDED = (COUNTERS.index(name) for name in ("enqueued", "started", "succeeded_1"))
RETRY_CREDITS, SLOT_MS = COUNTERS.index("retry_credits"), COUNTERS.index("slot_ms")
_ATTEMPTS_APART: Final = 4

Line: TypeAlias = dict[int | str, int]
"""The numbers of one name in one bucket: by the number of a measure, and deaths by their code."""


class SeriesDelta(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What happened in one minute to jobs of one queue, task, dependency and tenant."""

    minute: int
    """Since 1970."""
    queue: str
    task: str
    dependency: str
    tenant: str
    numbers: Line

    def names(self) -> Iterator[tuple[SeriesSubject, str]]:
        """Return the lines that it counts for: none of a dependency or tenant for jobs without one."""
        yield "all", ""
        yield "queue", self.queue
        yield "task", self.task
        if self.dependency:
            yield "dependency", self.dependency
        if self.tenant:
            yield "tenant", self.tenant


class Bucket(NamedTuple):
    """A bucket of time of one subject, which holds the lines of its names."""

    step: Step
    at: int
    """When it begins, in milliseconds."""
    subject: SeriesSubject


class SeriesPoint(Record):
    """What happened in one bucket of time. Counters and codes that are not there are 0."""

    at: int
    """When the bucket begins."""
    counts: dict[Counter, int] = msgspec.field(default_factory=dict)
    died: dict[str, int] = msgspec.field(default_factory=dict)
    """Jobs that died, by code."""
    waits: tuple[int, ...] = ()
    """A histogram by `EDGES_MS`; empty if nothing was counted."""
    runs: tuple[int, ...] = ()


def bucket_at(at: int, step: Step) -> int:
    """Return when the bucket of an instant begins."""
    return at - at % STEP_MS[step]


def success_number(attempt: int) -> int:
    """Return the number of the counter of successes at an attempt."""
    return SUCCEEDED + (min(_ATTEMPTS_APART, attempt)) - 1


def delta_of(change: Change) -> SeriesDelta | None:
    """Return what a change counts as, when it is written; None for starts and successes, which workers count."""
    numbers = _numbers_of(change)
    if not numbers:
        return None
    job = change.job
    return SeriesDelta(change.event.at // MINUTE_MS, job.queue, job.task, job.dependency, job.tenant, numbers)


def _numbers_of(change: Change) -> Line:
    move = change.event.move
    match move:
        case Retry():
            return _counted("retried") | ({} if move.charged else _counted("spared"))
        case Park():
            return _counted("parked") | ({} if move.charged else _counted("spared"))
        case Dead():
            return {death_code(move): 1} | (_counted("spared") if move.spared else {})
        case Return():
            return _counted("recovered") if move.crashed else {}
        case Snooze():
            return _counted("snoozed")
        case Cancel():
            return _counted("cancelled")
        case ManualRetry():
            return _counted("manually_retried")
        case Revive():
            return _counted("revived")
        case Start() | Succeed() | Enqueue():
            return {}
        case _:
            assert_never(move)


def _counted(name: Counter) -> Line:
    return {COUNTERS.index(name): 1}


def death_code(move: Dead) -> str:
    """Return the code that a death counts under: "expired", that of its cause, or how the job died."""
    return "expired" if move.death == "expired" else move.cause.code or move.death


def add(line: Line, numbers: Mapping[int | str, int]) -> None:
    """Add numbers to a line."""
    for key, count in numbers.items():
        if key.__class__ is str and key not in line and sum(isinstance(code, str) for code in line) >= MAX_CODES:
            line[OTHERS] = line.get(OTHERS, 0) + count
        else:
            line[key] = line.get(key, 0) + count


def sums(deltas: Iterable[SeriesDelta], before: Mapping[Step, int]) -> dict[Bucket, dict[str, Line]]:
    """Return what deltas add to the lines of each bucket, by name. Buckets that begin `before` are not kept."""
    of_minutes: dict[tuple[int, SeriesSubject, str], Line] = {}
    for delta in deltas:
        for subject, name in delta.names():
            add(of_minutes.setdefault((delta.minute, subject, name), {}), delta.numbers)
    found: dict[Bucket, dict[str, Line]] = {}
    for (minute, subject, name), numbers in of_minutes.items():
        for step in STEPS:
            at = bucket_at(minute * MINUTE_MS, step)
            if at >= before[step]:
                add(found.setdefault(Bucket(step, at, subject), {}).setdefault(name, {}), numbers)
    return found


def merge(stored: Mapping[str, Line], added: Mapping[str, Line], most: int) -> dict[str, Line]:
    """Return the lines of a bucket that change: those stored, with what is added.

    While fewer than `most` names have a line, new names get one, those with the most jobs first; the numbers of all
    others are added to the line of `OTHERS`.
    """
    changed: dict[str, Line] = {}
    room = most - sum(name != OTHERS for name in stored)
    new = sorted((name for name in added if name not in stored), key=lambda name: (-events_in(added[name]), name))
    own = {*stored, *new[: max(0, room)]}
    for name, numbers in added.items():
        target = name if name in own else OTHERS
        line = changed.get(target)
        if line is None:
            line = changed[target] = dict(stored.get(target, {}))
        add(line, numbers)
    return changed


def events_in(line: Line) -> int:
    """Return how much happened, by which names are ranked: enqueues, starts, and what followed."""
    events = 0
    for key, count in line.items():
        if isinstance(key, str) or key < RETRY_CREDITS:
            events += count
    return events


def point(at: int, line: Line, wanted: frozenset[Measure] = MEASURES) -> SeriesPoint:
    """Return a line as a point, with the measures that are wanted."""
    counts: dict[Counter, int] = {}
    died: dict[str, int] = {}
    waits: list[int] = []
    runs: list[int] = []
    for key, count in line.items():
        if isinstance(key, str):
            died[key] = count
        elif key < WAIT_FROM:
            counts[COUNTERS[key]] = count
        elif key < RUN_FROM:
            waits = waits or [0] * HISTOGRAM_BUCKETS
            waits[key - WAIT_FROM] = count
        else:
            runs = runs or [0] * HISTOGRAM_BUCKETS
            runs[key - RUN_FROM] = count
    if wanted is not MEASURES:
        counts = {name: count for name, count in counts.items() if name in wanted}
    return SeriesPoint(
        at=at,
        counts=counts,
        died=died if "died" in wanted else {},
        waits=tuple(waits) if "wait" in wanted else (),
        runs=tuple(runs) if "run" in wanted else (),
    )


pack_deltas = msgspec.msgpack.Encoder().encode
"""Pack a list of deltas."""

pack_line = msgspec.msgpack.Encoder().encode
_decode_deltas = msgspec.msgpack.Decoder(list[SeriesDelta]).decode
_decode_line = msgspec.msgpack.Decoder(dict[int | str, int]).decode


def unpack_deltas(packed: bytes) -> list[SeriesDelta]:
    """Return deltas that were packed; none of those that cannot be read: numbers are lost then, and nothing else."""
    try:
        return _decode_deltas(packed)
    except msgspec.MsgspecError:
        return []


def unpack_line(packed: bytes) -> Line:
    """Return a line that was packed; an empty one if it cannot be read."""
    try:
        return _decode_line(packed)
    except msgspec.MsgspecError:
        return {}
