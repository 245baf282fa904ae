"""Every query that pages, metrics and commands ask of a store, as data: a name, and the call."""

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import NamedTuple, get_args

from msgspec.structs import replace

from benchmarks.queries.facts import DAY_MS, TASKS, Facts
from reprieve.core.series import SeriesSubject, Step
from reprieve.core.status import Status
from reprieve.stores.protocol import (
    AuditFilter,
    CauseGrouping,
    CauseRequest,
    EventQuery,
    Filter,
    NameSubject,
    Order,
    Range,
    SeriesRequest,
    Store,
    Subject,
    Tally,
)


class Query(NamedTuple):
    """One query."""

    name: str
    ask: Callable[[Store, Facts, int], Awaitable[object]]
    """Takes the store, what is in it, and the time."""


def _find(name: str, wanted: Callable[[Facts], Filter], order: Order = "oldest", limit: int = 50) -> Query:
    return Query(f"find {name}", lambda store, facts, now: store.find(wanted(facts), now, limit=limit, order=order))


def _tally(by: Tally, name: str = "", wanted: Callable[[Facts], Filter] = lambda _: Filter()) -> Query:
    return Query(f"tally by {by}{name}", lambda store, facts, now: store.tally(by, wanted(facts), now))


def _limits(subject: Subject, queue: str = "") -> Query:
    return Query(f"limit states of {subject}", lambda store, _, __: store.limit_states(subject, queue, limit=50))


def _causes(name: str, request: Callable[[Facts], CauseRequest]) -> Query:
    return Query(f"causes {name}", lambda store, facts, now: store.causes(request(facts), now))


def _only(*statuses: Status) -> frozenset[Status]:
    return frozenset(statuses)


ORDERS: dict[Status, tuple[Order, ...]] = {
    "ready": ("oldest", "newest"),
    "running": ("longest", "newest"),
    "scheduled": ("due", "newest"),
    "retrying": ("due", "newest"),
    "parked": ("due", "newest"),
    "dead": ("oldest", "newest"),
    "cancelled": ("oldest", "newest"),
    "succeeded": ("oldest", "newest"),
}

NAMES: dict[str, Callable[[Facts], Filter]] = {
    "a tenant": lambda facts: Filter(tenants=(facts.tenant,)),
    "a task": lambda facts: Filter(tasks=(facts.task,)),
    "a queue": lambda facts: Filter(queues=(facts.queue,)),
    "a dependency": lambda facts: Filter(dependencies=(facts.dependency,)),
    "three tenants": lambda facts: Filter(tenants=(facts.tenant, "tenant-00008", "tenant-00009")),
    "three tasks": lambda _: Filter(tasks=TASKS[:3]),
    "a tenant and task": lambda facts: Filter(tenants=(facts.tenant,), tasks=(facts.task,)),
    "a priority": lambda _: Filter(priority=5),
    "the last hour": lambda facts: Filter(created=Range(since=facts.filled_at - 3_600_000)),
    "a first attempt": lambda _: Filter(attempts=Range(since=1, until=2)),
}
"""Filters that are asked of jobs in several states."""

FAILURES: dict[str, Callable[[Facts], Filter]] = {
    "a code": lambda facts: Filter(codes=(facts.code,)),
    "a fingerprint": lambda facts: Filter(fingerprints=(facts.fingerprint,)),
    "a text": lambda _: Filter(text="mx17.example"),
    "a text that no job has": lambda _: Filter(text="no such failure"),
}
"""Filters of jobs that failed."""


def _all(_: Facts) -> Filter:
    return Filter()


def _in(status: Status, wanted: Callable[[Facts], Filter]) -> Callable[[Facts], Filter]:
    return lambda facts: replace(wanted(facts), statuses=_only(status))


def _finds() -> Iterator[Query]:
    for status, orders in ORDERS.items():
        for order in orders:
            yield _find(f"{status}, {order}", _in(status, _all), order)
    for status in ("ready", "retrying", "dead", "succeeded"):
        for name, wanted in NAMES.items():
            yield _find(f"{status} of {name}", _in(status, wanted), "newest")
    for status in ("retrying", "dead"):
        for name, wanted in FAILURES.items():
            yield _find(f"{status} with {name}", _in(status, wanted), "newest")
    yield _find("newest", lambda _: Filter(), "newest")
    for name, wanted in NAMES.items():
        yield _find(f"any of {name}", wanted, "newest")
    yield _find("due within an hour", lambda facts: _due(facts.filled_at + DAY_MS), "due")
    yield _find("ended in an hour", lambda facts: Filter(ended=_hour(facts.filled_at - DAY_MS // 2)), "newest")
    yield _find("by ids", lambda facts: Filter(ids=facts.ids))
    yield _find("by the end of an id", lambda facts: Filter(id_parts=(facts.ids[0][-8:],)))
    yield _find("by key", lambda facts: Filter(key=facts.key, tasks=(facts.task,), tenants=(facts.tenant,)))
    yield _find("of a session", lambda _: Filter(session="filler-0"))


def _hour(since: int) -> Range:
    return Range(since=since, until=since + 3_600_000)


def _due(since: int) -> Filter:
    return Filter(statuses=_only("scheduled"), due=_hour(since))


TALLIES = (
    _tally("status"),
    _tally("queue"),
    _tally("task"),
    _tally("dependency"),
    _tally("tenant"),
    Query("tally by tenant, top ten", lambda store, _, now: store.tally("tenant", Filter(), now, top=10, at_most=500)),
    _tally("death", " of the dead", lambda _: Filter(statuses=_only("dead"))),
    _tally("code", " of the dead", lambda _: Filter(statuses=_only("dead"))),
    _tally("fingerprint", " of the dead", lambda _: Filter(statuses=_only("dead"))),
    _tally("fingerprint", " of a tenant's dead", _in("dead", NAMES["a tenant"])),
    _tally("status", " of a tenant", NAMES["a tenant"]),
    _tally("status", " of a queue", NAMES["a queue"]),
    _tally("status", " of a task", NAMES["a task"]),
    _tally("status", " of a dependency", NAMES["a dependency"]),
)


def _names(subject: NameSubject, prefix: str = "", limit: int = 100) -> Query:
    return Query(
        f"{limit} names of {subject} with {prefix!r}", lambda store, _, __: store.names(subject, prefix, limit)
    )


NAMED = (*map(_names, get_args(NameSubject)), _names("tenant", "tenant-00", 20))

OTHERS = (
    _limits("queue"),
    _limits("tenant", "mail"),
    _limits("task"),
    _limits("dependency"),
    Query("events after the beginning", lambda store, _, __: store.events(0, 100)),
    Query("events of a job", lambda store, facts, _: store.events(job_id=facts.ids[0])),
    Query("sessions", lambda store, _, now: store.sessions(now)),
    Query("failure groups", lambda store, facts, _: store.failure_groups(facts.fingerprints)),
    Query("entries with a prefix", lambda store, _, __: store.entries("bench/00")),
    Query("entry", lambda store, _, __: store.entry("bench/0007")),
    Query("result", lambda store, facts, _: store.result(facts.ids[0])),
    Query("progress", lambda store, facts, _: store.progress(facts.ids[0])),
    Query("limit defaults", lambda store, _, __: store.limit_defaults()),
)


def _events(name: str, wanted: Callable[[Facts], EventQuery]) -> Query:
    return Query(f"events {name}", lambda store, facts, _: store.read_events(wanted(facts)))


def _audits(name: str, wanted: Callable[[Facts], AuditFilter]) -> Query:
    return Query(f"audit log {name}", lambda store, facts, _: store.audit_log(wanted(facts)))


def _series(subject: SeriesSubject, step: Step, span_ms: int) -> Query:
    def wanted(facts: Facts) -> SeriesRequest:
        until = facts.filled_at
        names = ("",) if subject == "all" else ()
        return SeriesRequest(subject=subject, names=names, since_at=until - span_ms, until_at=until, step=step)

    return Query(
        f"series of {subject} by {step}, {span_ms // 3_600_000} h",
        lambda store, facts, now: store.series(wanted(facts), now),
    )


def _grouped(by: CauseGrouping, _: Facts) -> CauseRequest:
    return CauseRequest(by=by)


CAUSES = (
    *(_causes(f"by {by}", partial(_grouped, by)) for by in get_args(CauseGrouping)),
    _causes("by fingerprint, the last first", lambda _: CauseRequest(order="last")),
    _causes("by tenant, ten", lambda _: CauseRequest(by="tenant", limit=10)),
    _causes("of a tenant", lambda facts: CauseRequest(tenant=facts.tenant)),
    _causes("of a fingerprint, by tenant", lambda facts: CauseRequest(by="tenant", fingerprint=facts.fingerprint)),
    _causes("of the living", lambda _: CauseRequest(of="living")),
    _causes("of the living by tenant", lambda _: CauseRequest(by="tenant", of="living")),
    _causes("of the living by code", lambda _: CauseRequest(of="living", by="code")),
    _causes("of a week of hours", lambda _: CauseRequest(hours=168)),
)

SERIES = (
    _series("all", "minute", 3_600_000),
    _series("all", "minute", DAY_MS),
    _series("all", "ten_minutes", DAY_MS),
    _series("all", "hour", 60 * DAY_MS),
    _series("queue", "minute", 3_600_000),
    _series("task", "minute", 3_600_000),
    _series("tenant", "ten_minutes", DAY_MS),
    _series("dependency", "hour", 10 * DAY_MS),
    Query(
        "series names of tenants",
        lambda store, facts, now: store.series_names("tenant", facts.filled_at - 3_600_000, facts.filled_at, now),
    ),
)

LOGS = (
    _events("newest", lambda _: EventQuery(newest_first=True, limit=100)),
    _events("of a job, newest", lambda facts: EventQuery(job_id=facts.ids[0], newest_first=True)),
    _events("of a tenant", lambda facts: EventQuery(tenant=facts.tenant, newest_first=True, limit=50)),
    _events("of a queue", lambda facts: EventQuery(queue=facts.queue, newest_first=True, limit=50)),
    _events("of a name", lambda _: EventQuery(names=frozenset({"JobDied"}), newest_first=True, limit=50)),
    _audits("newest", lambda _: AuditFilter()),
    _audits("of an actor", lambda _: AuditFilter(actor="ana")),
    _audits("of a tenant", lambda facts: AuditFilter(tenant=facts.tenant)),
    _audits("of a job", lambda facts: AuditFilter(kind="job", name=facts.ids[0])),
    Query("entries since the beginning", lambda store, _, __: store.entries_since("", "bench/")),
)

QUERIES = (*_finds(), *NAMED, *TALLIES, *CAUSES, *SERIES, *LOGS, *OTHERS)
