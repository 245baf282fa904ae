# ruff: noqa: D103, PLR2004 - a check's name is its sentence, and its numbers stand beside what they are compared with
"""Checks of limit states: their pages, and what they say of waiting and running jobs."""

from typing import get_args

from reprieve.core.headers import Headers
from reprieve.errors import InvalidCursor
from reprieve.stores.paginate import all_limit_states
from reprieve.stores.protocol import LimitState, LimitUpdate, Store, Subject
from reprieve.testing.conformance.expect import expect, expect_equal, expect_error
from reprieve.testing.conformance.stage import HOUR, MINUTE, SECOND, START, Worker, enqueued, succeed, update_limits


async def _state_of(store: Store, subject: Subject, name: str) -> LimitState:
    (state,) = [one for one in await all_limit_states(store, subject) if one.name == name]
    return state


async def check_limit_states_come_in_pages_by_prefix(store: Store) -> None:
    for number in range(25):
        await enqueued(store, tenant=f"acme-{number:02}", dependency=f"ses-{number:02}")
    await enqueued(store, tenant="other", dependency="smtp")
    await enqueued(store, tenant="acme-99", queue="x")
    wanted: dict[Subject, str] = {"tenant": "acme-", "dependency": "ses-"}
    for subject, prefix in wanted.items():
        names: list[str] = []
        cursor = ""
        for _ in range(100):
            page = await store.limit_states(subject, "default", prefix, cursor, 4)
            expect(len(page.states) <= 4, f"a page of 4 has {len(page.states)}")
            names += [state.name for state in page.states]
            cursor = page.cursor
            if not cursor:
                break
        expect_equal(sorted(names), [f"{prefix}{number:02}" for number in range(25)], f"all pages, by {subject}")
    await expect_error(
        store.limit_states("tenant", cursor="nonsense"), InvalidCursor, "a page after a cursor of its own"
    )


async def check_limit_state_says_what_is_ready_and_since_when(store: Store) -> None:
    for number in range(3):
        await enqueued(store, START + number * SECOND, tenant="acme", dependency="ses", group="news")
    await enqueued(store, tenant="acme", dependency="ses", group="news", due_at=START + HOUR)
    await update_limits(store, LimitUpdate(subject="tenant_dependency", name="acme", dependency="ses", max_running=1))
    names = {"queue": "default", "tenant": "acme", "task": "send", "dependency": "ses", "group": "news"}
    for subject in get_args(Subject):
        state = await _state_of(store, subject, names.get(subject, "acme"))
        expect_equal((state.ready, state.running, state.oldest_at), (3, 0, START), f"what waits, by {subject}")
    worker = await Worker.open(store)
    leased = await worker.one(at=START + 5 * SECOND)
    for subject in get_args(Subject):
        state = await _state_of(store, subject, names.get(subject, "acme"))
        found = (state.ready, state.running, state.oldest_at)
        expect_equal(found, (2, 1, START + SECOND), f"what waits and runs, by {subject}")
    held = await _state_of(store, "tenant_dependency", "acme")
    expect_equal((held.max_running, held.own), (1, ("max_running",)), "the limits of a tenant and a dependency")
    await worker.settle(succeed(leased), at=START + 5 * SECOND)


async def check_limit_state_has_no_oldest_job_with_an_sla(store: Store) -> None:
    subjects: tuple[Subject, ...] = ("queue", "tenant", "task", "dependency")
    for number in range(3):
        headers = Headers(sla_at=START + HOUR - number)
        await enqueued(store, START + number * SECOND, tenant="acme", dependency="ses", headers=headers)
    for subject in subjects:
        (state,) = await all_limit_states(store, subject)
        expect_equal((state.ready, state.oldest_at), (3, None), f"what waits with an SLA, by {subject}")
    await enqueued(store, START + MINUTE, tenant="acme", dependency="ses")
    worker = await Worker.open(store)
    await worker.settle(succeed(await worker.one(at=START + MINUTE), START + MINUTE), at=START + MINUTE)
    for subject in subjects:
        (state,) = await all_limit_states(store, subject)
        expect_equal((state.ready, state.oldest_at), (3, START + MINUTE), f"what waits also without one, by {subject}")
