# ruff: noqa: D103 - a check's name is its sentence
"""Checks of pages that are read while lanes come and go, and of many jobs that stand at the same time."""

from collections.abc import Sequence

from reprieve.core import change
from reprieve.core.job import Job
from reprieve.core.status import Status
from reprieve.stores.protocol import Filter, Order, Page, Store
from reprieve.testing.conformance.expect import expect, expect_equal
from reprieve.testing.conformance.stage import OPERATOR, START, enqueue, new_job

NOW = START + 100
READY: frozenset[Status] = frozenset({"ready"})
BATCH_JOBS = 200
PAGE_JOBS = 100


async def _enqueue_in_batches(store: Store, jobs: Sequence[Job]) -> None:
    for start in range(0, len(jobs), BATCH_JOBS):
        await enqueue(store, *jobs[start : start + BATCH_JOBS], at=START + 50)


async def _cancel_in_batches(store: Store, jobs: Sequence[Job], at: int) -> None:
    for start in range(0, len(jobs), BATCH_JOBS):
        await store.apply([change.cancel(job, OPERATOR, at) for job in jobs[start : start + BATCH_JOBS]], at)


async def _following(store: Store, wanted: Filter, page: Page, order: Order) -> list[Page]:
    pages = [page]
    while pages[-1].cursor:
        pages.append(await store.find(wanted, NOW, pages[-1].cursor, PAGE_JOBS, order))
    return pages


async def check_ready_jobs_are_found_once_while_lanes_come_and_go(store: Store) -> None:
    jobs = [new_job(store, START + number % 7, tenant=f"t{number:03}") for number in range(450) for _ in range(2)]
    await _enqueue_in_batches(store, jobs)
    wanted = Filter(statuses=READY)
    orders: tuple[Order, ...] = ("oldest", "newest")
    pages = {order: await store.find(wanted, NOW, "", PAGE_JOBS, order) for order in orders}
    await _cancel_in_batches(store, [job for job in jobs if job.tenant[2] == "3" or job.tenant < "t050"], NOW)
    added = [new_job(store, START + 20, tenant=f"{letter}{number:03}") for letter in "at" for number in range(450, 500)]
    await _enqueue_in_batches(store, added)
    unchanged = {job.id for job in jobs if job.tenant[2] != "3" and job.tenant >= "t050"}
    for order, page in pages.items():
        found = [job.id for page in await _following(store, wanted, page, order) for job in page.jobs]
        expect_equal(len(unchanged - set(found)), 0, f"unchanged jobs that no page returned, {order} first")
        expect_equal(len(found) - len(set(found)), 0, f"jobs that two pages returned, {order} first")


async def check_many_jobs_of_one_millisecond_come_page_by_page(store: Store) -> None:
    jobs = [new_job(store, tenant=f"t{number % 5}") for number in range(1_200)]
    await _enqueue_in_batches(store, jobs)
    await _cancel_in_batches(store, jobs, NOW)
    wanted = Filter(statuses=frozenset({"cancelled"}))
    orders: tuple[Order, ...] = ("oldest", "newest")
    for order in orders:
        pages = await _following(store, wanted, await store.find(wanted, NOW, "", PAGE_JOBS, order), order)
        found = [job.id for page in pages for job in page.jobs]
        expect_equal(sorted(found), sorted(job.id for job in jobs), f"jobs that ended at one time, {order} first")
        expect(
            all(page.examined <= 2 * PAGE_JOBS for page in pages[:-1]),
            f"{[page.examined for page in pages]} jobs looked at for pages of {PAGE_JOBS}",
        )


async def check_many_fresh_jobs_of_one_millisecond_come_page_by_page(store: Store) -> None:
    jobs = [new_job(store) for _ in range(1_000)]
    await _enqueue_in_batches(store, jobs)
    wanted = Filter(statuses=READY)
    orders: tuple[Order, ...] = ("oldest", "newest")
    for order in orders:
        pages = await _following(store, wanted, await store.find(wanted, NOW, "", PAGE_JOBS, order), order)
        found = [job.id for page in pages for job in page.jobs]
        expect_equal(len(found), len(jobs), f"jobs that were enqueued at one time and are found, {order} first")
        expect_equal(set(found), {job.id for job in jobs}, f"jobs that were enqueued at one time, {order} first")
