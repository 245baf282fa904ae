# ruff: noqa: D103 - a check's name is its sentence, and its numbers stand beside what they are compared with
"""Checks of what can be read of sessions: who opened them, and what their last heartbeats said."""

from typing import Any

from reprieve.errors import ValidationError
from reprieve.stores.protocol import MAX_SESSION_QUEUES, MAX_SESSION_TASKS, Session, Store
from reprieve.testing.conformance.expect import expect, expect_equal, expect_error
from reprieve.testing.conformance.stage import SECOND, START, Worker, enqueued

LEASE = 15.0
END = START + 15 * SECOND
OPENING: dict[str, Any] = {
    "slots": 10,
    "lease": LEASE,
    "queues": ("mail", "reports"),
    "host": "mail-3",
    "pid": 4_711,
    "version": "1.2.3",
    "tasks": ("send", "render"),
}
OPENED = Session(
    id="worker-1",
    host="mail-3",
    pid=4_711,
    version="1.2.3",
    queues=("mail", "reports"),
    tasks=("send", "render"),
    slots=10,
    since=START,
    heartbeat_at=START,
)


async def check_session_can_be_read_from_its_opening_to_its_end(store: Store) -> None:
    expect_equal(await store.sessions(START), [], "sessions of an empty store")
    worker = await Worker.open(store, **OPENING)
    expect_equal(await store.sessions(START), [OPENED], "the session that was opened")
    await worker.heartbeat(START + 1, lease=0)
    expect_equal(await store.sessions(START + 1), [], "sessions after its end")


async def check_heartbeat_updates_what_is_read_of_a_session(store: Store) -> None:
    worker = await Worker.open(store, **OPENING)
    said: dict[str, Any] = {"slots": 12, "prefetch": 250, "running": 7, "queues": ("mail",)}
    await worker.heartbeat(START + SECOND, lease=LEASE, **said)
    (session,) = await store.sessions(START + SECOND)
    found = {name: getattr(session, name) for name in said}
    expect_equal(found, said, "what the last heartbeat said")
    expect_equal((session.since, session.heartbeat_at), (START, START + SECOND), "when it was opened, and heard last")
    expect_equal((session.host, session.pid, session.tasks), ("mail-3", 4_711, ("send", "render")), "who opened it")


async def check_repeated_opening_does_not_change_who_opened_a_session(store: Store) -> None:
    await Worker.open(store, **OPENING)
    await Worker.open(store, at=START + SECOND, **OPENING | {"host": "mail-4"})
    (session,) = await store.sessions(START + SECOND)
    expect_equal((session.host, session.since), ("mail-3", START), "who opened it, and when")
    expect_equal(session.heartbeat_at, START + SECOND, "when it was heard last")


async def check_session_is_listed_while_its_lease_lasts(store: Store) -> None:
    worker = await Worker.open(store, **OPENING)
    expect_equal(len(await store.sessions(END)), 1, "sessions at the last moment of the lease")
    expect_equal(await store.sessions(END + 1), [], "sessions a millisecond later")
    await worker.heartbeat(END + SECOND, lease=LEASE)
    expect_equal(len(await store.sessions(END + SECOND)), 1, "sessions when it was heard again, before recovery")
    await enqueued(store)
    await worker.one(at=END + SECOND)
    await store.recover(END + 60 * SECOND)
    expect_equal(await store.sessions(START), [], "sessions when it was declared dead, though it still holds a job")


async def check_session_that_says_nothing_of_itself_has_empty_fields(store: Store) -> None:
    await Worker.open(store, slots=3)
    wanted = Session(id="worker-1", slots=3, since=START, heartbeat_at=START)
    expect_equal(await store.sessions(START), [wanted], "a session that only says what it must")


async def check_sessions_are_listed_by_id(store: Store) -> None:
    for name in ("b", "ä", "a", "B"):
        await Worker.open(store, name)
    expect_equal([session.id for session in await store.sessions(START)], ["B", "a", "b", "ä"], "ids of sessions")


async def check_session_can_know_ten_thousand_tasks(store: Store) -> None:
    tasks = tuple(f"application.module.task_{number}" for number in range(10_000))
    worker = await Worker.open(store, tasks=tasks)
    await worker.heartbeat(START + SECOND)
    (session,) = await store.sessions(START + SECOND)
    expect(session.tasks == tasks, "all tasks of the session are read")


async def check_session_with_wrong_names_or_too_many_is_refused(store: Store) -> None:
    wrong: tuple[dict[str, Any], ...] = (
        {"queues": ("mail\n",)},
        {"queues": ("",)},
        {"queues": tuple(f"q{number}" for number in range(MAX_SESSION_QUEUES + 1))},
        {"tasks": ("x" * 256,)},
        {"tasks": tuple(f"t{number}" for number in range(MAX_SESSION_TASKS + 1))},
        {"host": "a\0b"},
        {"prefetch": -1},
        {"running": True},
    )
    for fields in wrong:
        await expect_error(Worker.open(store, **fields), ValidationError, f"a session with {next(iter(fields))}")
    expect_equal(await store.sessions(START), [], "sessions that were opened")
