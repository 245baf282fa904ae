"""Every format in which something is stored, with one value or several of each: how they are written, and read again.

A value sets every field that its format has, so that a field that moves, or is read as another type, is noticed. New
fields get a value of their own, and the values of released formats stay as they are.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from reprieve.core import change
from reprieve.core.audit import AuditEntry
from reprieve.core.events import Event
from reprieve.core.gate import Gate
from reprieve.core.headers import Headers
from reprieve.core.ids import created_at, id_to_bytes
from reprieve.core.job import CancelRequest, Cause, Job, Suspicion
from reprieve.core.move import (
    Cancel,
    Dead,
    Enqueue,
    ManualRetry,
    Move,
    Park,
    Retry,
    Return,
    Revive,
    Snooze,
    Start,
    Succeed,
)
from reprieve.core.notice import Notice
from reprieve.core.policy import Override
from reprieve.core.series import SeriesDelta
from reprieve.stores import audit_pages, causes, gates, name_cursor, outbox, record, search_cursor
from reprieve.stores.entry_cursor import EntryCursor, parse_cursor
from reprieve.stores.event_record import pack_event, pack_notice, read_event, read_told
from reprieve.stores.failure_record import pack_group, unpack_group
from reprieve.stores.places import LaneGroup, PlaceKey, Position
from reprieve.stores.postgres import leases as postgres_leases
from reprieve.stores.protocol import CauseRequest, Entry, FailureGroup, Filter, Heartbeat
from reprieve.stores.redis import records as redis_records
from reprieve.stores.session_record import pack_heartbeat, pack_origin, session_of, unpack_heartbeat
from reprieve.stores.sql import claim as sql_claim
from reprieve.stores.sql import finished as sql_finished
from reprieve.stores.sqlite import leases as sqlite_leases

ID: Final = "0199c82c-c000-7abc-8def-2f6e11c40ae1"
AT: Final = created_at(ID)
FRESH: Final = Job(
    id=ID,
    task="mail.send",
    queue="mail",
    tenant="acme",
    dependency="smtp",
    payload=b'{"to":"a@example.com"}',
    created_at=AT,
    due_at=AT,
    max_attempts=10,
    timeout=60.0,
)
CAUSE: Final = Cause(
    reason="451 try later",
    code="451",
    kind="transient",
    fingerprint="5be1c0de",
    type="smtplib.SMTPServerDisconnected",
    rule="smtp: 4xx",
    scope="dependency",
    duration=1.5,
    traceback="Traceback …",
)
BRIEF_CAUSE: Final = replace(CAUSE, traceback="")
"""Events are stored without tracebacks."""

NOTICE: Final = Notice(
    at=AT,
    name="GateHeld",
    kind="dependency",
    subject="ses",
    queue="mail",
    tenant="acme",
    by="ana",
    reason="a drill",
    facts={"failures": 7, "rate": 0.5, "mode": "held", "is_new": True, "before": None},
)

RETRIED: Final = replace(
    FRESH,
    version=2,
    due_at=AT + 65_000,
    waiting_for="retry",
    deadline_at=AT + 86_400_000,
    attempt=1,
    charged=1,
    delay=4.5,
    cause=CAUSE,
    failed_at=AT + 60_000,
)
FULL: Final = replace(
    RETRIED,
    version=40,
    group="nightly",
    priority=1,
    key="welcome-7",
    key_ttl=3600.0,
    override=Override(max_attempts=3, retry_delay=1.5, max_retry_delay=60.0),
    created_at=AT - 5,
    state="dead",
    waiting_for="turn",
    attempt=12,
    charged=7,
    spared=3,
    parked_since_at=AT + 70_000,
    parked_on="smtp",
    parked_until_at=AT + 90_000,
    death="poison",
    finished_at=AT + 80_000,
    crashes=2,
    granted=4,
    snoozes=6,
    is_manual=True,
    suspicion=Suspicion(sessions=1, processes=2),
    deadline_from_at=AT + 75_000,
    headers=Headers(
        traceparent="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        tracestate="vendor=1",
        tags=("nightly", "eu"),
        parent="0199c82c-c000-7abc-8def-2f6e11c40ae2",
        linked="0199c82c-c000-7abc-8def-2f6e11c40ae3",
        operation="import-7",
        credits=3,
        sla_at=AT + 1_000,
        region="eu-west-1",
        user="ana",
        own={"origin": "import"},
    ),
)
JOBS: Final = {"fresh": FRESH, "retried": RETRIED, "full": FULL}
MOVES: Final[dict[str, Move | Enqueue]] = {
    "start": Start(session="mail-3"),
    "succeed": Succeed(),
    "retry": Retry(due_at=AT + 9, cause=BRIEF_CAUSE, delay=4.5, charged=False, max_attempts=7, parked_until_at=AT + 99),
    "park": Park(
        gate="smtp",
        due_at=AT + 9,
        cause=BRIEF_CAUSE,
        waiting_for="budget",
        charged=True,
        max_attempts=7,
        parked_until_at=AT + 99,
    ),
    "dead": Dead(
        death="poison", cause=BRIEF_CAUSE, charged=True, spared=True, crashed=True, alone=True, max_attempts=7
    ),
    "snooze": Snooze(due_at=AT + 9),
    "return": Return(crashed=True, started=False, alone=True),
    "cancel": Cancel(by="ana", reason="the customer left"),
    "manual retry": ManualRetry(by="ana", reason="the provider is back", due_at=AT + 9),
    "revive": Revive(due_at=AT + 9),
    "enqueue": Enqueue(),
}
HEARTBEAT: Final = Heartbeat(
    session="mail-3",
    now=AT,
    lease=15.0,
    slots=50,
    prefetch=7,
    running=3,
    queues=("mail", "default"),
    host="mail.example.net",
    pid=4_711,
    version="0.1.0",
    tasks=("mail.send",),
)
GROUP: Final = FailureGroup(
    fingerprint="5be1c0de",
    template="<n> try later",
    type="smtplib.SMTPServerDisconnected",
    traceback="Traceback …",
    first_seen_at=AT,
    last_seen_at=AT + 5,
)
DELTA: Final = SeriesDelta(AT // 60_000, "mail", "mail.send", "smtp", "acme", {0: 3, 6: 1, "451": 2})
CAUSES: Final = CauseRequest(by="tenant", fingerprint="5be1c0de", order="last")
GATE: Final = Gate(dependency="smtp", mode="held", probe_at=AT + 5)
SEARCH: Final = Filter(tenants=("acme",), statuses=frozenset({"dead"}))
POSITIONS: Final = [Position(0, None), None, Position(1, PlaceKey(LaneGroup("a", "b"), AT, "5be1c0de"))]


class Format(NamedTuple):
    """One value in one format."""

    write: Callable[[], bytes]
    read: Callable[[bytes], object]


def _job(job: Job) -> Format:
    model = replace(
        record.model_of(job.queue, job.tenant, job.task, job.dependency, job.group, job.lane_priority),
        state=job.state,
        waiting_for=job.waiting_for,
    )
    due_at = None if job.due_at == job.created_at else job.due_at
    return Format(lambda: record.pack(job, AT, due_at), lambda data: record.unpack(data, model, ID, job.version, AT))


def _event(move: Move | Enqueue) -> Format:
    event = Event(
        job_id=ID,
        at=AT + 9,
        attempt=2,
        version=5,
        move=move,
        session="mail-3",
        started_at=AT,
        queue="mail",
        tenant="acme",
        task="mail.send",
    )
    return Format(lambda: pack_event(event), read_event)


def _redis(job: Job) -> Format:
    raw = id_to_bytes(job.id)
    return Format(lambda: redis_records.pack(job, raw), lambda data: redis_records.unpack(raw, data))


def _leases() -> dict[str, Format]:
    rows = {7: sqlite_leases.LeasedJob(3, 41)}
    ids = {id_to_bytes(ID): (3, 41)}
    return {
        "lease/sqlite": Format(lambda: sqlite_leases.pack_lease(rows), sqlite_leases.unpack_lease),
        "lease/postgres": Format(
            lambda: postgres_leases.pack_lease(ids),
            lambda data: {job.hex(): lane for job, lane in postgres_leases.unpack_lease(data).items()},
        ),
    }


def _cursors() -> dict[str, Format]:
    return {
        "cursor/entries": Format(lambda: str(EntryCursor(7, 0xBEE)).encode(), lambda data: parse_cursor(data.decode())),
        "cursor/names": Format(
            lambda: name_cursor.write_cursor(("a", "b", "c")).encode(),
            lambda data: name_cursor.read_cursor(data.decode()),
        ),
        "cursor/causes": Format(
            lambda: causes.write_cursor(CAUSES, causes.Place(7, "5be1c0de")).encode(),
            lambda data: causes.read_cursor(replace(CAUSES, cursor=data.decode())),
        ),
        "cursor/search": Format(
            lambda: search_cursor.write_cursor(SEARCH, "newest", POSITIONS).encode(),
            lambda data: search_cursor.read_cursor(data.decode(), SEARCH, "newest", lambda _, __: True),
        ),
    }


def _last_claim() -> Format:
    last = sql_claim.LastClaim(results=("applied", "refused"), next_at=AT)
    return Format(lambda: sql_claim.pack_last_claim(last), lambda data: sql_claim.repeated(data, ()))


def _audit() -> Format:
    made = change.cancel(FRESH, change.Request(by="ana", reason="the customer left"), AT)
    entry = made.audit
    assert entry is not None
    return Format(lambda: audit_pages.pack_entry(entry), lambda data: msgspec.msgpack.decode(data, type=AuditEntry))


FORMATS: Final[dict[str, Format]] = {
    **{f"job/{name}": _job(job) for name, job in JOBS.items()},
    **{f"redis job/{name}": _redis(job) for name, job in JOBS.items()},
    **{f"event/{name}": _event(move) for name, move in MOVES.items()},
    "notice": Format(lambda: pack_notice(NOTICE), read_told),
    **_leases(),
    **_cursors(),
    "succeeded jobs": Format(lambda: sql_finished.pack_jobs([FRESH, FULL]), sql_finished.unpack_jobs),
    "outbox": Format(lambda: outbox.pack(FULL), outbox.unpack),
    "cancel request": Format(
        lambda: record.pack_cancel_request(CancelRequest(by="ana", reason="the customer left")),
        record.unpack_cancel_request,
    ),
    "session/origin": Format(
        lambda: pack_origin(HEARTBEAT), lambda data: session_of("mail-3", unpack_heartbeat(None), data)
    ),
    "session/heartbeat": Format(
        lambda: pack_heartbeat(HEARTBEAT), lambda data: session_of("mail-3", unpack_heartbeat(data), None)
    ),
    "failure group": Format(lambda: pack_group(GROUP), lambda data: unpack_group(data, AT + 5)),
    "gate": Format(
        lambda: msgspec.json.encode(GATE),
        lambda data: gates._stored(Entry(key="gate:smtp", version=3, value=data)),  # noqa: SLF001 - how it is read
    ),
    "last claim": _last_claim(),
    "series delta": Format(
        lambda: msgspec.msgpack.encode(DELTA), lambda data: msgspec.msgpack.decode(data, type=SeriesDelta)
    ),
    "audit entry": _audit(),
}
