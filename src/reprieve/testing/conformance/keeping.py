# ruff: noqa: D103 - a check's name is its sentence, and its numbers stand beside what they are compared with
"""Checks of entries and of prune: shared values, and when jobs are deleted."""

import asyncio

from reprieve.core import change
from reprieve.core.job import Job
from reprieve.core.status import STUCK_AFTER_SECONDS
from reprieve.stores.paginate import all_entries
from reprieve.stores.protocol import Entry, Filter, LimitUpdate, Pruned, Retention, Store
from reprieve.testing.conformance.expect import expect, expect_equal, expect_ids, expect_job
from reprieve.testing.conformance.stage import (
    DAY,
    HOUR,
    MINUTE,
    OPERATOR,
    SECOND,
    START,
    Worker,
    enqueue,
    enqueued,
    fail,
    find_all,
    get,
    kill,
    new_jobs,
    park,
    set_entry,
    succeed,
)


async def check_entry_is_made_changed_and_deleted(store: Store) -> None:
    made = await set_entry(store, "leader", 0, b"one")
    expect(made is not None and made.version > 0, "an entry that was not there is made")
    made = made or Entry(key="", version=0, value=b"")
    expect_equal((made.key, made.value), ("leader", b"one"), "the entry that was made")
    changed = await set_entry(store, "leader", made.version, b"two")
    expect(changed is not None and changed.version > made.version, "its version grows with every change")
    changed = changed or made
    expect_equal(await all_entries(store, "leader"), [changed], "the entry as it is kept")
    expect(
        await set_entry(store, "leader", changed.version, None) is not None,
        "a caller that knows its version deletes it",
    )
    expect_equal(await all_entries(store, "leader"), [], "entries after it was deleted")
    expect(await set_entry(store, "leader", 0, b"three") is not None, "and it can be made again")


async def check_entry_that_is_made_again_is_newer_than_it_ever_was(store: Store) -> None:
    newest = 0
    for _ in range(3):
        made = await set_entry(store, "leader", 0, b"one")
        changed = made and await set_entry(store, "leader", made.version, b"two")
        if made is None or changed is None:
            message = "a caller that knows the version of an entry changes it"
            raise AssertionError(message)
        expect(newest < made.version < changed.version, f"{made.version} and {changed.version} follow {newest}")
        newest = changed.version
        await set_entry(store, "leader", newest, None)
    expect_equal(
        await set_entry(store, "leader", newest, b"x"),
        None,
        "the result of a compare_and_set of an entry that was deleted",
    )
    expect_equal(await all_entries(store), [], "the entries")


async def check_entry_with_another_version_is_not_changed(store: Store) -> None:
    made = await set_entry(store, "leader", 0, b"one")
    version = made.version if made else 0
    for wrong in (0, version + 1):
        for value in (b"two", None):
            expect_equal(
                await set_entry(store, "leader", wrong, value),
                None,
                f"the result of a compare_and_set of version {wrong}",
            )
    expect_equal(
        await set_entry(store, "other", 3, b"x"),
        None,
        "the result of a compare_and_set of an entry that is not there",
    )
    expect_equal([entry.value for entry in await all_entries(store)], [b"one"], "the entries")


async def check_of_two_swaps_exactly_one_is_first(store: Store) -> None:
    results = await asyncio.gather(*(set_entry(store, "leader", 0, f"{number}".encode()) for number in range(5)))
    winners = [entry for entry in results if entry is not None]
    expect_equal(len(winners), 1, "winners among five who make the same entry")
    expect_equal(await all_entries(store), winners, "the entry")


async def check_entries_are_answered_by_prefix_in_order(store: Store) -> None:
    for key in ("budget/b", "budget/a", "budge", "budget0", "budget/a/1", "x%", "x_y"):
        await set_entry(store, key, 0, key.encode())
    found = [entry.key for entry in await all_entries(store, "budget/")]
    expect_equal(found, ["budget/a", "budget/a/1", "budget/b"], "the keys that begin with budget/")
    expect_equal([entry.key for entry in await all_entries(store, "x%")], ["x%"], "the keys that begin with x%")
    expect_equal([entry.key for entry in await all_entries(store, "x_")], ["x_y"], "the keys that begin with x_")
    expect_equal(len(await all_entries(store)), 7, "entries in all")


async def check_entry_is_read_by_its_key(store: Store) -> None:
    made = await set_entry(store, "gate:ses", 0, b"one")
    await set_entry(store, "gate:ses-eu", 0, b"two")
    expect_equal(await store.entry("gate:ses"), made, "the entry of a key")
    expect_equal(await store.entry("gate:se"), None, "the entry of a key that only begins like others")


async def check_changes_of_entries_are_read_since_a_cursor(store: Store) -> None:
    versions = {}
    for key in ("gate:a", "gate:b", "gate:c", "leader"):
        made = await set_entry(store, key, 0, b"one")
        versions[key] = made.version if made else 0
    whole = await store.entries_since("", "gate:")
    expect(whole.is_whole, "a read without a cursor returns all entries, and says so")
    keys = sorted(entry.key for entry in whole.entries)
    expect_equal(keys, ["gate:a", "gate:b", "gate:c"], "all entries under a prefix")
    expect(whole.version >= max(versions.values()), "the number of the newest change is no smaller than any version")
    changes = await store.entries_since(whole.cursor, "gate:")
    expect_equal((changes.entries, changes.deleted), ((), ()), "what changed when nothing did")
    changed = await set_entry(store, "gate:a", versions["gate:a"], b"two")
    changed = changed and await set_entry(store, "gate:a", changed.version, b"three")
    await set_entry(store, "gate:b", versions["gate:b"], None)
    await set_entry(store, "leader", versions["leader"], b"two")
    changes = await store.entries_since(changes.cursor, "gate:")
    expect(not changes.is_whole, "a read since a cursor returns what changed")
    expect_equal(changes.entries, (changed,), "the entries that were set, as they are now")
    expect_equal([deletion.key for deletion in changes.deleted], ["gate:b"], "the entries that were deleted")
    again = await set_entry(store, "gate:b", 0, b"again")
    expect(again is not None and again.version > changes.deleted[0].version, "versions after a deletion are larger")
    changes = await store.entries_since(changes.cursor, "gate:")
    expect_equal((changes.entries, changes.deleted), ((again,), ()), "an entry that was deleted and made again")


async def check_cursor_that_is_not_known_reads_all_entries(store: Store) -> None:
    made = await set_entry(store, "gate:a", 0, b"one")
    first = (await store.entries_since()).cursor
    await set_entry(store, "gate:b", 0, b"one")
    number, _, stamp = first.partition(".")
    of_a_later_backup = (f"{int(number) + 1_000}.{stamp}", f"{number}.{int(stamp or '0', 16) ^ 1:x}")
    for cursor in ("", "0.0", "nonsense", "-1.5", "9" * 40 + ".1", *of_a_later_backup):
        changes = await store.entries_since(cursor, "gate:a")
        expect(changes.is_whole, f"the cursor {cursor!r} is not one of this store, so all entries are read")
        expect_equal(changes.entries, (made,), "all entries under the prefix")
    expect(not (await store.entries_since(first)).is_whole, "a cursor of this store goes on")


async def check_swap_carries_its_regulations_or_none(store: Store) -> None:
    await enqueue(store, *new_jobs(store, 2, dependency="ses"))
    hold = LimitUpdate(subject="dependency", name="ses", permits=0)
    worker = await Worker.open(store)
    expect_equal(
        await set_entry(store, "gate/ses", 7, b"held", [hold], START),
        None,
        "the result of a compare_and_set that lost",
    )
    expect_equal(len(await worker.take()), 1, "jobs leased after a compare_and_set that lost")
    expect(await set_entry(store, "gate/ses", 0, b"held", [hold], START) is not None, "a compare_and_set that won")
    expect_equal(await worker.take(), [], "jobs leased after a compare_and_set that held the gate")


async def _ended(store: Store, at: int, count: int = 1, queue: str = "default") -> list[Job]:
    jobs = new_jobs(store, count, at, queue=queue)
    await enqueue(store, *jobs, at=at)
    worker = await Worker.open(store, f"worker-{queue}-{at}", at=at)
    taken = await worker.take(count, at, queues=(queue,))
    await worker.settle(*(succeed(job, at) for job in taken), at=at)
    return taken


async def check_prune_forgets_succeeded_jobs_by_age(store: Store) -> None:
    await _ended(store, START, 3)
    young = await _ended(store, START + 2 * HOUR, 2)
    pruned = await store.prune(Retention(now=START + 3 * HOUR, succeeded_for=2 * 3_600))
    expect_equal(pruned.succeeded, 3, "succeeded jobs that went")
    expect_ids(await find_all(store, Filter()), young, "jobs that stayed")


async def check_prune_keeps_so_many_succeeded_jobs_of_each_queue(store: Store) -> None:
    await _ended(store, START, 3)
    here = await _ended(store, START + SECOND, 2)
    there = await _ended(store, START, 2, "other")
    pruned = await store.prune(Retention(now=START + MINUTE, succeeded=2))
    expect_equal(pruned.succeeded, 3, "succeeded jobs that went")
    expect_ids(await find_all(store, Filter()), [*here, *there], "the youngest of each queue stay")


async def check_prune_forgets_cancelled_jobs_by_age(store: Store) -> None:
    jobs = [await enqueued(store), await enqueued(store)]
    for job, at in zip(jobs, (START, START + 2 * DAY), strict=True):
        await store.apply([change.cancel(job, OPERATOR, at)], at)
    pruned = await store.prune(Retention(now=START + 3 * DAY, cancelled_for=2 * 86_400, succeeded=0, succeeded_for=0))
    expect_equal((pruned.cancelled, pruned.succeeded), (1, 0), "cancelled and succeeded jobs that went")
    expect_ids(await find_all(store, Filter()), jobs[1:], "jobs that stayed")


async def check_prune_forgets_nothing_that_waits_runs_or_is_dead(store: Store) -> None:
    await enqueue(store, *new_jobs(store, 4, dependency="ses"))
    worker = await Worker.open(store)
    running, retrying, parked, dead = await worker.exactly(4)
    await worker.settle(fail(retrying), park(parked), kill(dead))
    waiting = await enqueued(store)
    later = START + 365 * DAY
    strict = Retention(now=later, succeeded=0, succeeded_for=0, cancelled_for=0, events_for=0.001)
    pruned = await store.prune(strict)
    expect_equal((pruned.succeeded, pruned.cancelled, pruned.dead), (0, 0, 0), "jobs that went")
    found = await find_all(store, Filter(), later)
    expect_ids(found, [running, retrying, parked, dead, waiting], "jobs that stayed")


async def check_dead_job_goes_only_when_it_was_archived(store: Store) -> None:
    await enqueue(store, *new_jobs(store, 3))
    worker = await Worker.open(store)
    archived, retried, kept = await worker.exactly(3)
    deaths = [kill(job) for job in (archived, retried, kept)]
    await worker.settle(*deaths)
    await store.apply([change.retry(deaths[1].job, OPERATOR, START, STUCK_AFTER_SECONDS)], START)
    named = tuple(death.job for death in deaths[:2])
    pruned = await store.prune(Retention(now=START + MINUTE, archived=named))
    expect_equal(pruned.dead, 1, "dead jobs that went")
    expect_equal(await get(store, archived), None, "the job that was archived")
    expect_ids(await find_all(store, Filter()), [retried, kept], "the jobs that stayed")


async def check_dead_job_that_died_again_does_not_go_under_its_old_version(store: Store) -> None:
    await enqueued(store)
    worker = await Worker.open(store)
    first = kill(await worker.one())
    await worker.settle(first)
    await store.apply([change.revive(first.job, START)], START)
    again = kill(await worker.one())
    await worker.settle(again)
    pruned = await store.prune(Retention(now=START + MINUTE, archived=(first.job,)))
    expect_equal(pruned.dead, 0, "dead jobs that went")
    expect_job(await get(store, again.job), again.job)


async def check_prune_forgets_events_by_age(store: Store) -> None:
    job = await enqueued(store)
    cancelled = change.cancel(job, OPERATOR, START)
    await store.apply([cancelled], START)
    expect_equal([event for _, event in await store.events()], [cancelled.event], "events before")
    kept = await store.prune(Retention(now=START + 2 * DAY))
    expect_equal((kept.events, len(await store.events())), (0, 1), "events that went, and stayed, after two days")
    pruned = await store.prune(Retention(now=START + 8 * DAY))
    expect_equal((pruned.events, await store.events()), (1, []), "events that went, and stayed, after eight days")


async def check_prune_forgets_results_by_their_own_time(store: Store) -> None:
    await enqueue(store, *new_jobs(store, 2))
    worker = await Worker.open(store)
    short, long = await worker.exactly(2)
    await worker.settle(succeed(short, result=b"short", ttl=60.0), succeed(long, result=b"long", ttl=3_600.0))
    pruned = await store.prune(Retention(now=START + 2 * MINUTE))
    expect_equal((pruned.results, pruned.succeeded), (1, 0), "results and jobs that went")
    expect_equal((await store.result(short.id), await store.result(long.id)), (None, b"long"), "the two results")
    pruned = await store.prune(Retention(now=START + 2 * MINUTE, succeeded=0, succeeded_for=0))
    expect_equal((pruned.results, pruned.succeeded), (0, 2), "results and jobs that went with the jobs")
    expect_equal(await store.result(long.id), b"long", "the result of a job that is gone")


async def check_prune_of_nothing_says_so(store: Store) -> None:
    expect_equal(await store.prune(Retention(now=START)), Pruned(), "what went of an empty store")
    await enqueued(store)
    expect_equal(await store.prune(Retention(now=START + 365 * DAY)), Pruned(), "what went of a job that waits")


async def check_repeat_of_a_pruned_jobs_change_does_nothing(store: Store) -> None:
    await enqueued(store)
    worker = await Worker.open(store)
    done = succeed(await worker.one())
    await worker.settle(done)
    await store.prune(Retention(now=START + MINUTE, succeeded=0))
    (result,) = await store.apply([done], START + MINUTE)
    expect(result in ("missing", "already"), f"the change of a job that went is missing or already done, not {result}")
    expect_equal(await get(store, done.job), None, "the job that went")
