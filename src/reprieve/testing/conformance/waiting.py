# ruff: noqa: D103 - a check's name is its sentence, and its numbers stand beside what they are compared with
"""Checks of wait and close. Only these use real time, and little of it."""

import asyncio
from collections.abc import Awaitable, Callable

from reprieve.core import change
from reprieve.core.move import ManualRetry
from reprieve.core.notice import Notice
from reprieve.errors import StoreClosed
from reprieve.stores.paginate import all_entries
from reprieve.stores.protocol import Annotation, Claim, EventQuery, Filter, Heartbeat, LimitUpdate, Retention, Store
from reprieve.testing.conformance.expect import expect, expect_error
from reprieve.testing.conformance.stage import (
    CANCEL_REQUEST,
    HOUR,
    OPERATOR,
    PROGRAM,
    SECOND,
    START,
    Worker,
    enqueue,
    enqueued,
    fail,
    make,
    new_job,
    new_jobs,
    set_entry,
)

LONG_SECONDS, SHORT_SECONDS = 10.0, 0.05


async def _notifies(store: Store, act: Callable[[], Awaitable[object]], queues: tuple[str, ...] = ("default",)) -> bool:
    # A session is notified of every change after its claim, even if it begins to wait later.
    await store.heartbeat(Heartbeat(session="listener", now=START, lease=60.0, slots=1, is_new=True))
    await store.claim(Claim(session="listener", number=1, now=START, queues=queues))
    waiting = asyncio.ensure_future(store.wait(queues, LONG_SECONDS, "listener"))
    await act()
    return await waiting


async def check_waiters_are_notified_on_enqueue(store: Store) -> None:
    expect(await _notifies(store, lambda: enqueue(store, new_job(store))), "a waiter is notified of a new job")


async def check_waiters_are_notified_for_any_of_their_queues(store: Store) -> None:
    job = new_job(store, queue="b")
    expect(
        await _notifies(store, lambda: enqueue(store, job), ("a", "b")), "a waiter is notified for its second queue too"
    )


async def check_waiters_are_notified_on_a_manual_retry(store: Store) -> None:
    job = await enqueued(store)
    cancel = change.cancel(job, OPERATOR, START)
    await store.apply([cancel], START)
    retry = change.retry(cancel.job, OPERATOR, START, 1_800.0)
    expect(await _notifies(store, lambda: store.apply([retry], START)), "a waiter is notified of a manual retry")


async def check_waiters_are_notified_of_a_job_that_is_due_before_all_others(store: Store) -> None:
    later = new_job(store, due_at=START + HOUR, waiting_for="schedule")
    await enqueue(store, later)
    sooner = new_job(store, due_at=START + SECOND, waiting_for="schedule")
    expect(await _notifies(store, lambda: enqueue(store, sooner)), "a waiter is notified of when the next job is due")


async def check_waiters_are_notified_of_a_manual_retry_that_is_due_later(store: Store) -> None:
    job = await enqueued(store)
    cancel = change.cancel(job, OPERATOR, START)
    await store.apply([cancel], START)
    retry = make(cancel.job, ManualRetry(by="ana", reason="fixed", due_at=START + SECOND), START)
    expect(await _notifies(store, lambda: store.apply([retry], START)), "a waiter is notified of when it is due")


async def check_waiters_are_notified_of_a_retry_that_its_own_worker_has_no_room_for(store: Store) -> None:
    worker = await Worker.open(store)
    await enqueue(store, *new_jobs(store, 2))
    leased = await worker.one()
    settle = fail(leased, due_at=START + SECOND)
    expect(await _notifies(store, lambda: worker.ask(1, changes=[settle])), "a waiter is notified of when it is due")


async def check_waiters_are_notified_on_a_release(store: Store) -> None:
    hold = LimitUpdate(subject="dependency", name="ses", permits=0)
    await store.update_limits([hold], START, PROGRAM)
    await enqueue(store, *new_jobs(store, 2, dependency="ses"))
    release = LimitUpdate(subject="dependency", name="ses", permits=None)
    worker = await Worker.open(store)
    await worker.take()
    expect(
        await _notifies(store, lambda: store.update_limits([release], START, PROGRAM)),
        "a waiter is notified when a gate is released",
    )


async def check_waiters_are_notified_on_a_cancel_request(store: Store) -> None:
    await enqueued(store)
    worker = await Worker.open(store)
    leased = await worker.one()
    annotation = Annotation(job_id=leased.id, now=START, cancel=CANCEL_REQUEST)
    expect(await _notifies(store, lambda: store.annotate([annotation])), "a waiter is notified of a cancel request")


async def check_waiters_on_every_queue_are_notified_when_an_entry_changes(store: Store) -> None:
    expect(
        await _notifies(store, lambda: set_entry(store, "gate:ses", 0, b"1"), ("other",)),
        "a waiter is notified of a new entry",
    )
    (entry,) = await all_entries(store, "gate:ses")
    delete = set_entry(store, "gate:ses", entry.version, None)
    expect(await _notifies(store, lambda: delete, ("other",)), "a waiter is notified of a deleted entry")


async def check_wait_ends_by_itself(store: Store) -> None:
    expect(
        not await store.wait(("default",), SHORT_SECONDS), "nothing changed, so wait returns False after its timeout"
    )


async def check_closed_store_says_so(store: Store) -> None:
    job = await enqueued(store)
    await store.close()
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "enqueue": lambda: enqueue(store, job),
        "claim": lambda: store.claim(Claim(session="s", number=1, now=START, queues=("default",), limit=1)),
        "apply": lambda: store.apply([change.cancel(job, OPERATOR, START)], START),
        "heartbeat": lambda: store.heartbeat(Heartbeat(session="s", now=START, lease=1.0, slots=1, is_new=True)),
        "recover": lambda: store.recover(START),
        "expire": lambda: store.expire(START),
        "annotate": lambda: store.annotate([Annotation(job_id=job.id, now=START, cancel=CANCEL_REQUEST)]),
        "update_limits": lambda: store.update_limits(
            [LimitUpdate(subject="task", name="send", permits=0)], START, PROGRAM
        ),
        "compare_and_set": lambda: set_entry(store, "leader", 0, b""),
        "prune": lambda: store.prune(Retention(now=START)),
        "find": lambda: store.find(Filter(), START),
        "tally": lambda: store.tally("status", Filter(), START),
        "events": store.events,
        "tell": lambda: store.tell([Notice(at=START, name="AlertRaised")]),
        "read_events": lambda: store.read_events(EventQuery()),
        "result": lambda: store.result(job.id),
        "entries": store.entries,
        "entry": lambda: store.entry("leader"),
        "entries_since": store.entries_since,
        "limit_defaults": store.limit_defaults,
        "limit_states": lambda: store.limit_states("queue"),
        "wait": lambda: store.wait(("default",), SHORT_SECONDS),
    }
    for name, call in calls.items():
        await expect_error(call(), StoreClosed, f"{name} after close")
