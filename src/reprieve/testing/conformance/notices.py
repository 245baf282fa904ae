# ruff: noqa: D103 - a check's name is its sentence
"""Checks of notices: what happened to something that is no job, in the same stream as events."""

from msgspec.structs import replace

from reprieve.core import change
from reprieve.core.audit import Audit, Automatic
from reprieve.core.gate import Gate
from reprieve.core.notice import Notice
from reprieve.core.rate import Rate
from reprieve.errors import ValidationError
from reprieve.stores.gates import open_gate, read_gate, write_gate
from reprieve.stores.protocol import EntryWrite, EventQuery, LimitUpdate, Retention, Store
from reprieve.testing.conformance.expect import expect, expect_equal, expect_error
from reprieve.testing.conformance.stage import DAY, OPERATOR, SECOND, START, Worker, enqueued

ANA = Audit(by="ana", reason="a drill")
ALERT = Notice(
    at=START + SECOND,
    name="AlertRaised",
    kind="alert",
    subject="backlog",
    queue="mail",
    tenant="acme",
    by="ana",
    reason="a drill",
    facts={"threshold": 0.5, "jobs": 7, "is_new": True, "before": None},
)


async def notices(store: Store) -> list[Notice]:
    """Return all notices."""
    page = await store.read_events(EventQuery(only="notices"))
    return [told for _, told in page.events if isinstance(told, Notice)]


async def check_notices_are_told_among_events(store: Store) -> None:
    first, second = await enqueued(store), await enqueued(store)
    await store.apply([change.cancel(first, OPERATOR, START)], START)
    await store.tell([ALERT, Notice(at=START, name="ConfigurationChanged")])
    await store.apply([change.cancel(second, OPERATOR, START)], START)
    page = await store.read_events(EventQuery())
    names = ["JobCancelled", "AlertRaised", "ConfigurationChanged", "JobCancelled"]
    expect_equal([told.name for _, told in page.events], names, "what the stream tells")
    expect_equal(page.events[1][1], ALERT, "the notice as it is read")
    positions = [position for position, _ in page.events]
    expect_equal(positions, sorted(set(positions)), "the positions of events and notices")
    expect_equal(len(await store.events()), 2, "events of jobs")
    backwards = await store.read_events(EventQuery(newest_first=True))
    expect_equal(backwards.events, page.events[::-1], "what the stream tells, backwards")


async def check_notices_are_found_by_what_they_say(store: Store) -> None:
    await store.tell([ALERT, Notice(at=START, name="GateHeld", kind="dependency", subject="ses")])
    queries = {
        EventQuery(queue="mail"): ["AlertRaised"],
        EventQuery(tenant="acme", only="notices"): ["AlertRaised"],
        EventQuery(names=frozenset({"GateHeld"})): ["GateHeld"],
        EventQuery(task="send"): [],
        EventQuery(only="jobs"): [],
    }
    for query, wanted in queries.items():
        found = [told.name for _, told in (await store.read_events(query)).events]
        expect_equal(found, wanted, f"what {query!r} finds")


async def check_sessions_are_told_once(store: Store) -> None:
    first = await Worker.open(store, "worker-1", lease=10.0, slots=3, host="h", pid=7, version="1.0")
    await first.heartbeat(is_new=True, lease=10.0, slots=3)
    second = await Worker.open(store, "worker-2", lease=60.0)
    await first.heartbeat(START + SECOND, lease=10.0, slots=3)
    await store.recover(START + 30 * SECOND)
    await store.recover(START + 31 * SECOND)
    await second.heartbeat(START + 32 * SECOND, lease=0.0)
    await second.heartbeat(START + 33 * SECOND, lease=0.0)
    told = await notices(store)
    expect_equal(
        [(notice.name, notice.subject, notice.at) for notice in told],
        [
            ("SessionOpened", "worker-1", START),
            ("SessionOpened", "worker-2", START),
            ("SessionDied", "worker-1", START + 30 * SECOND),
            ("SessionEnded", "worker-2", START + 32 * SECOND),
        ],
        "what the stream tells of sessions",
    )
    expect_equal(
        told[0].facts, {"host": "h", "pid": 7, "version": "1.0", "slots": 3, "queues": 0}, "who opened the session"
    )


async def check_notices_go_with_events(store: Store) -> None:
    await store.tell([ALERT])
    while not (await store.prune(Retention(now=START + 8 * DAY))).is_all:
        pass
    page = await store.read_events(EventQuery())
    expect_equal((page.events, page.missed), ((), True), "what is left of a notice after its time")


async def check_notice_that_cannot_be_stored_is_refused(store: Store) -> None:
    bad = (
        Notice(at=-1, name="AlertRaised"),
        Notice(at=START, name="JobVanished"),  # type: ignore[arg-type]  # what is refused
        Notice(at=START, name="AlertRaised", subject="a\nb"),
        Notice(at=START, name="AlertRaised", facts={"list": [1]}),  # type: ignore[dict-item]  # as above
        Notice(at=START, name="AlertRaised", facts={"long": "x" * 20_000}),
    )
    for notice in bad:
        await expect_error(store.tell([ALERT, notice]), ValidationError, f"telling {notice!r:.200}")
    await store.tell([])
    expect(not await notices(store), "nothing is told where one notice is refused")


async def check_limits_are_told_with_their_change(store: Store) -> None:
    updates = [
        LimitUpdate(subject="queue", name="mail", pauses=("retry",)),
        LimitUpdate(subject="tenant", name="acme", queue="mail", weight=2.0, max_running=3),
        LimitUpdate(subject="dependency", name=None, rate=Rate(count=5, window=60.0)),
    ]
    await store.update_limits(updates, START, ANA)
    await store.update_limits([LimitUpdate(subject="queue", name="mail", pauses=())], START, Automatic(by="test"))
    told = [(one.name, one.kind, one.subject, one.queue, one.tenant, one.by) for one in await notices(store)]
    expect_equal(
        told,
        [
            ("QueuePaused", "queue", "mail", "mail", "", "ana"),
            ("WeightChanged", "tenant", "acme", "mail", "acme", "ana"),
            ("LimitChanged", "tenant", "acme", "mail", "acme", "ana"),
            ("LimitChanged", "dependency", "", "", "", "ana"),
            ("QueueResumed", "queue", "mail", "mail", "", ""),
        ],
        "what the stream tells of limits",
    )
    facts = (await notices(store))[3].facts
    expect_equal(facts, {"rate_count": 5, "rate_window": 60.0, "is_default": True}, "the facts of a default")


async def check_gate_is_told_with_its_entry_and_only_once(store: Store) -> None:
    held = Gate(dependency="ses", mode="held", down_at=START)
    version = await write_gate(store, open_gate("ses"), held, START, Automatic(by="gates"))
    lost = await write_gate(store, open_gate("ses"), held, START, Automatic(by="gates"))
    expect_equal(lost, None, "a write of a gate that has changed since")
    stored = await read_gate(store, "ses")
    expect_equal(stored.version, version, "the version of the gate")
    await write_gate(store, stored, replace(held, fails=9), START, Automatic(by="gates"))
    await write_gate(store, await read_gate(store, "ses"), None, START + SECOND, ANA)
    told = [(one.name, one.subject, one.at, one.by) for one in await notices(store)]
    wanted = [("GateHeld", "ses", START, ""), ("GateOpened", "ses", START + SECOND, "ana")]
    expect_equal(told, wanted, "what the stream tells of a gate")
    entry = EntryWrite(key="x", version=0, value=b"1", notices=(ALERT,))
    for _ in range(2):
        await store.compare_and_set(entry, START, ANA)
    expect_equal((await notices(store))[2:], [ALERT], "the notice of a write that was repeated")
