"""The recount: reads a store as a whole, and compares what it finds with every count that the store keeps.

For stores that nothing writes to meanwhile: after a crash, at the end of a history. A full read costs as much as there
are jobs, so this is a check for tests.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, get_args

from msgspec.structs import replace

from reprieve.core.events import Event
from reprieve.core.job import Job
from reprieve.core.move import Cancel, Dead, ManualRetry, Park, Retry, Return, Revive, Snooze
from reprieve.core.series import death_code
from reprieve.core.status import Status, status_of
from reprieve.stores.causes import listing_of, names_of
from reprieve.stores.paginate import all_limit_states
from reprieve.stores.protocol import (
    CauseGrouping,
    CausePage,
    CauseRequest,
    Filter,
    SeriesRequest,
    Store,
    Subject,
    Tally,
)
from reprieve.testing.conformance.auditing import all_audit
from reprieve.testing.conformance.stage import find_all

_WAITING: Final = frozenset({"ready", "scheduled", "retrying", "parked"})
_BY_JOB: Final[tuple[Tally, ...]] = ("queue", "tenant", "task", "dependency")
_BY_DEATH: Final[tuple[Tally, ...]] = ("death", "code", "fingerprint")
_COUNTED_MOVES: Final[dict[type, str]] = {
    Retry: "retried",
    Park: "parked",
    Snooze: "snoozed",
    Cancel: "cancelled",
    ManualRetry: "manually_retried",
    Revive: "revived",
}
"""Moves that a series counts in the write that stores them."""


async def differences(store: Store, now: int) -> list[str]:
    """Return a line for each kept count that differs from a full read; none if all of them are right."""
    jobs = await find_all(store, Filter(), now, limit=1_000)
    return [
        *await _tallies(store, jobs, now),
        *await _limits(store, jobs),
        *await _causes(store, jobs, now),
        *await _audit(store, await _events(store)),
    ]


async def series_differences(store: Store, since_at: int, now: int, whole_queues: Sequence[str] = ()) -> list[str]:
    """Return a line for each number of the series since an instant that differs from the events since then.

    Events must be kept since then, and the last prune must have added everything to the series. Enqueues are compared
    with the jobs of queues that still have each of theirs. Starts and successes are not compared: what a killed worker
    had not said yet is lost.
    """
    request = SeriesRequest(subject="all", names=("",), since_at=since_at, until_at=now, step="minute")
    kept: Counter[str] = Counter()
    for line in await store.series(request, now):
        for point in line.points:
            kept.update({name: count for name, count in point.counts.items() if name in _COUNTED_NAMES})
            kept.update({f"died of {code}": count for code, count in point.died.items()})
    counted = Counter(name for event in await _events(store) for name in _counted_as(event))
    return [
        *_compare("series", kept, counted),
        *[line for queue in whole_queues for line in await _enqueues(store, queue, since_at, now)],
    ]


async def _enqueues(store: Store, queue: str, since_at: int, now: int) -> list[str]:
    request = SeriesRequest(subject="queue", names=(queue,), since_at=since_at, until_at=now, measures=("enqueued",))
    (line,) = await store.series(request, now)
    kept = sum(point.counts.get("enqueued", 0) for point in line.points)
    jobs = await find_all(store, Filter(queues=(queue,)), now, limit=1_000)
    return list(_compare("enqueues", {queue: kept}, {queue: sum(job.created_at >= since_at for job in jobs)}))


_COUNTED_NAMES: Final = frozenset((*_COUNTED_MOVES.values(), "recovered"))


def _counted_as(event: Event) -> Iterator[str]:
    move = event.move
    if isinstance(move, Dead):
        yield f"died of {death_code(move)}"
    elif isinstance(move, Return) and move.crashed:
        yield "recovered"
    elif type(move) in _COUNTED_MOVES:
        yield _COUNTED_MOVES[type(move)]


async def _tallies(store: Store, jobs: list[Job], now: int) -> list[str]:
    found: list[str] = []
    kept = Counter[str]()
    for status, count in (await store.tally("status", Filter(), now)).counts.items():
        kept[_broad(status)] += count
    found += _compare("tally by status", kept, Counter(_broad(status_of(job, now)) for job in jobs))
    for by in _BY_JOB:
        kept = Counter((await store.tally(by, Filter(), now)).counts)
        found += _compare(f"tally by {by}", kept, Counter(getattr(job, by) for job in jobs))
    dead = [job for job in jobs if job.state == "dead"]
    for by in _BY_DEATH:
        kept = Counter((await store.tally(by, Filter(statuses=frozenset[Status]({"dead"})), now)).counts)
        found += _compare(f"tally of the dead by {by}", kept, Counter(_of_death(job, by) for job in dead))
    return found


def _of_death(job: Job, by: Tally) -> str:
    if by == "death":
        return job.death or ""
    return "" if job.cause is None else str(getattr(job.cause, by))


async def _causes(store: Store, jobs: list[Job], now: int) -> list[str]:
    """Compare the groups of dead jobs; a job whose record was damaged after its death counts as it was before."""
    dead = [names_of(job) for job in jobs if job.state == "dead"]
    groups = Counter(group for names in dead for group in names.groups())
    requests = [CauseRequest(by=by) for by in get_args(CauseGrouping)]
    requests += [CauseRequest(tenant=tenant) for tenant in sorted({names.tenant for names in dead})]
    fingerprints = sorted({names.fingerprint for names in dead if names.fingerprint})
    requests += [CauseRequest(by="tenant", fingerprint=fingerprint) for fingerprint in fingerprints]
    found: list[str] = []
    for request in requests:
        kept: dict[str, int] = {}
        page = await store.causes(request, now)
        while page.groups:
            kept |= {group.name: group.count for group in page.groups}
            page = await store.causes(replace(request, cursor=page.cursor), now) if page.cursor else CausePage()
        listing = listing_of(request)
        wanted = {
            group.name: count
            for group, count in groups.items()
            if (group.kind, group.scope) == (listing.kind, listing.scope)
        }
        found += _compare(f"causes {listing}", kept, wanted)
    return found


def _broad(status: str) -> str:
    """Return what does not depend on the clock: a job that is due may be promoted already, or not."""
    return "waiting" if status in _WAITING else "running" if status == "stuck" else status


async def _limits(store: Store, jobs: list[Job]) -> list[str]:
    found: list[str] = []
    running = [job for job in jobs if job.state == "running"]
    subjects: tuple[Subject, ...] = get_args(Subject)
    for subject in subjects:
        states = await all_limit_states(store, subject)
        kept = Counter({_name(state.name, state.queue, state.dependency): state.running for state in states})
        counted = Counter(name for job in running for name in _names(job, subject))
        if subject == "tenant_dependency":
            # Only pairs that have limits are counted.
            counted = Counter({name: count for name, count in counted.items() if name in kept})
        found += _compare(f"running by {subject}", kept, counted)
    return found


def _names(job: Job, subject: Subject) -> Iterable[str]:
    match subject:
        case "tenant":
            return (_name(job.tenant, job.queue, ""),)
        case "tenant_dependency":
            return (_name(job.tenant, "", job.dependency),) if job.dependency else ()
        case "queue" | "task":
            return (_name(str(getattr(job, subject)), "", ""),)
        case _:
            name = str(getattr(job, subject))
            return (_name(name, "", ""),) if name else ()


def _name(name: str, queue: str, dependency: str) -> str:
    return f"{name} / {queue} / {dependency}"


async def _events(store: Store) -> list[Event]:
    events: list[Event] = []
    position = 0
    while page := await store.events(position, 1_000):
        events += [event for _, event in page]
        position = page[-1][0]
    return events


async def _audit(store: Store, events: list[Event]) -> list[str]:
    """Compare the manual retries of jobs whose events are kept with those in the audit log."""
    log = await all_audit(store)
    known = {event.job_id for event in events}
    kept = Counter(entry.name for entry in log if entry.action == "retry" and entry.name in known)
    return list(
        _compare(
            "audit entries of retries",
            kept,
            Counter(event.job_id for event in events if isinstance(event.move, ManualRetry)),
        )
    )


def _compare(what: str, kept: Mapping[str, int], counted: Mapping[str, int]) -> Iterator[str]:
    for name in sorted(kept.keys() | counted.keys()):
        if kept.get(name, 0) != counted.get(name, 0):
            yield f"{what}: {name!r} is kept as {kept.get(name, 0)}, and counted {counted.get(name, 0)}"
