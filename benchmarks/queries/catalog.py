"""Every query that pages, metrics and commands ask of a store, as data: a name, and the call."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from benchmarks.queries.facts import Facts
from reprieve.core.status import Status
from reprieve.stores.protocol import Filter, Store, Subject, Tally


class Query(NamedTuple):
    """One query."""

    name: str
    ask: Callable[[Store, Facts, int], Awaitable[object]]
    """Takes the store, what is in it, and the time."""


def _find(name: str, wanted: Callable[[Facts], Filter], limit: int = 50) -> Query:
    return Query(f"find {name}", lambda store, facts, now: store.find(wanted(facts), now, limit=limit))


def _tally(by: Tally, name: str = "", wanted: Callable[[Facts], Filter] = lambda _: Filter()) -> Query:
    return Query(f"tally by {by}{name}", lambda store, facts, now: store.tally(by, wanted(facts), now))


def _limits(subject: Subject, queue: str = "") -> Query:
    return Query(f"limit states of {subject}", lambda store, _, __: store.limit_states(subject, queue, limit=50))


def _only(*statuses: Status) -> frozenset[Status]:
    return frozenset(statuses)


FINDS = (
    _find("newest", lambda _: Filter(newest_first=True)),
    _find("ready", lambda _: Filter(statuses=_only("ready"))),
    _find("running", lambda _: Filter(statuses=_only("running"))),
    _find("scheduled", lambda _: Filter(statuses=_only("scheduled"))),
    _find("retrying", lambda _: Filter(statuses=_only("retrying"))),
    _find("parked", lambda _: Filter(statuses=_only("parked"))),
    _find("dead, newest", lambda _: Filter(statuses=_only("dead"), newest_first=True)),
    _find("cancelled, newest", lambda _: Filter(statuses=_only("cancelled"), newest_first=True)),
    _find("succeeded, newest", lambda _: Filter(statuses=_only("succeeded"), newest_first=True)),
    _find("of a tenant", lambda facts: Filter(tenant=facts.tenant)),
    _find("ready of a tenant", lambda facts: Filter(tenant=facts.tenant, statuses=_only("ready"))),
    _find("dead of a tenant", lambda facts: Filter(tenant=facts.tenant, statuses=_only("dead"))),
    _find("dead of a task", lambda facts: Filter(task=facts.task, statuses=_only("dead"))),
    _find("dead of a queue", lambda facts: Filter(queue=facts.queue, statuses=_only("dead"), newest_first=True)),
    _find("dead of a dependency", lambda facts: Filter(dependency=facts.dependency, statuses=_only("dead"))),
    _find("dead with a code", lambda facts: Filter(code=facts.code, statuses=_only("dead"))),
    _find("dead with a fingerprint", lambda facts: Filter(fingerprint=facts.fingerprint, statuses=_only("dead"))),
    _find("ready of a task", lambda facts: Filter(task=facts.task, statuses=_only("ready"))),
    _find("by ids", lambda facts: Filter(ids=facts.ids)),
    _find("by the end of an id", lambda facts: Filter(id_parts=(facts.ids[0][-8:],))),
    _find("by key", lambda facts: Filter(key=facts.key, task=facts.task, tenant=facts.tenant)),
    _find("of a session", lambda _: Filter(session="filler-0")),
)

TALLIES = (
    _tally("status"),
    _tally("queue"),
    _tally("task"),
    _tally("dependency"),
    _tally("death", " of the dead", lambda _: Filter(statuses=_only("dead"))),
    _tally("code", " of the dead", lambda _: Filter(statuses=_only("dead"))),
    _tally("fingerprint", " of the dead", lambda _: Filter(statuses=_only("dead"))),
    _tally("status", " of a tenant", lambda facts: Filter(tenant=facts.tenant)),
    _tally("status", " of a queue", lambda facts: Filter(queue=facts.queue)),
    _tally("status", " of a task", lambda facts: Filter(task=facts.task)),
)

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

QUERIES = (*FINDS, *TALLIES, *OTHERS)
