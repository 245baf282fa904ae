# ruff: noqa: D103, PLR2004 - a check's name is its sentence, and its numbers stand beside what they are compared with
"""Checks of fairness between tenants and of priorities inside one. The order among equals is left to the store."""

from msgspec.structs import replace

from reprieve.core.job import HIGH, LOW, NORMAL
from reprieve.stores.protocol import LimitUpdate, Store
from reprieve.testing.conformance.expect import expect, expect_equal, expect_ids
from reprieve.testing.conformance.stage import (
    MINUTE,
    SECOND,
    START,
    Worker,
    count_by,
    enqueue,
    enqueued,
    longest_run,
    new_job,
    new_jobs,
    succeed,
    update_limits,
)

IN_A_ROW = 3
"""Jobs of one tenant in a row while another waits below its share."""


def _weight(tenant: str, weight: float) -> LimitUpdate:
    return LimitUpdate(subject="tenant", name=tenant, queue="default", weight=weight)


async def check_equal_tenants_take_turns(store: Store) -> None:
    for tenant in "abc":
        await enqueue(store, *new_jobs(store, 8, tenant=tenant))
    worker = await Worker.open(store)
    order = [job.tenant for job in await worker.take(12)]
    for _ in range(6):
        order += [job.tenant for job in await worker.take(2)]
    for start in range(0, 24, 3):
        expect_equal(sorted(order[start : start + 3]), ["a", "b", "c"], f"tenants of the round from {start}")


async def check_equal_tenants_take_turns_when_nothing_runs(store: Store) -> None:
    for tenant in "abc":
        await enqueue(store, *new_jobs(store, 5, tenant=tenant))
    worker = await Worker.open(store, slots=1)
    order = []
    for _ in range(15):
        leased = await worker.one()
        order.append(leased.tenant)
        await worker.settle(succeed(leased))
    for start in range(0, 15, 3):
        expect_equal(sorted(order[start : start + 3]), ["a", "b", "c"], f"tenants of the round from {start}")


async def check_tenant_with_fewest_slots_is_first(store: Store) -> None:
    await enqueue(store, *new_jobs(store, 5, tenant="busy"))
    worker = await Worker.open(store)
    await worker.take(3)
    await enqueue(store, *new_jobs(store, 5, tenant="idle"))
    order = [job.tenant for job in await worker.take(5)]
    expect_equal(order[:3], ["idle"] * 3, "whom the slots go to while one tenant holds three")
    expect_equal(sorted(order[3:]), ["busy", "idle"], "and when both hold three")


async def check_slots_are_shared_by_weight(store: Store) -> None:
    await update_limits(store, _weight("gold", 3.0), _weight("basic", 1.0))
    for tenant in ("gold", "basic"):
        await enqueue(store, *new_jobs(store, 60, tenant=tenant))
    worker = await Worker.open(store)
    counts = count_by(await worker.take(40), "tenant")
    expect(29 <= counts["gold"] <= 31, f"a tenant of weight 3 gets 30 of 40 slots, not {counts['gold']}")


async def check_new_weight_counts_for_backlog_at_once(store: Store) -> None:
    for tenant in ("gold", "basic"):
        await enqueue(store, *new_jobs(store, 60, tenant=tenant))
    worker = await Worker.open(store, slots=40)
    counts = count_by(await worker.take(20), "tenant")
    expect_equal(counts["gold"], 10, "slots of one of two equal tenants")
    # The other tenant is at its share of the forty slots, so nothing stands in the way.
    await update_limits(store, _weight("gold", 3.0))
    counts += count_by(await worker.take(20), "tenant")
    expect(28 <= counts["gold"] <= 30, f"a weight of 3 brings the tenant to 30 of 40 slots, not {counts['gold']}")


async def check_no_tenant_gets_more_than_three_in_a_row_while_another_is_below_its_share(store: Store) -> None:
    await update_limits(store, _weight("huge", 10.0), _weight("small", 1.0))
    await enqueue(store, *new_jobs(store, 200, tenant="huge"), *new_jobs(store, 20, tenant="small"))
    worker = await Worker.open(store, slots=110)
    order: list[str] = []
    for _ in range(12):
        order += [job.tenant for job in await worker.take(3)]
    # Until the small tenant holds its share of 110 / 11 slots.
    watched = order[: _position(order, "small", 10)]
    expect(len(watched) >= 10, f"both tenants are served, not {order!r}")
    longest = longest_run(watched, "huge")
    expect(longest <= IN_A_ROW, f"{longest} jobs in a row while another was below its share")


async def check_tenant_without_jobs_has_no_share(store: Store) -> None:
    # Absent tenants, however heavy, leave the small one its 12 / 11 slots: one that it holds is still below them.
    await update_limits(store, _weight("huge", 10.0), _weight("small", 1.0), _weight("absent", 1_000.0))
    await enqueue(store, *new_jobs(store, 40, tenant="huge"), *new_jobs(store, 5, tenant="small"))
    worker = await Worker.open(store, slots=12)
    order = [job.tenant for job in await worker.take(10)]
    expect(order.count("small") >= 2, f"the small tenant is served until it holds its share, not {order!r}")
    longest = longest_run(order[: _position(order, "small", 2)], "huge")
    expect(longest <= IN_A_ROW, f"{longest} jobs in a row while another was below its share")


def _position(names: list[str], name: str, nth: int) -> int:
    places = [place for place, other in enumerate(names) if other == name]
    return places[nth - 1] if len(places) >= nth else len(names)


async def check_streak_counts_across_sessions(store: Store) -> None:
    await update_limits(store, _weight("huge", 10.0), _weight("small", 1.0))
    await enqueue(store, *new_jobs(store, 60, tenant="huge"), *new_jobs(store, 10, tenant="small"))
    workers = [await Worker.open(store, name, slots=60) for name in ("a", "b")]
    order = [job.tenant for _ in range(8) for worker in workers for job in await worker.take()]
    longest = longest_run(order, "huge")
    expect(longest <= IN_A_ROW, f"{longest} jobs of one tenant in a row over two sessions")


async def check_tenant_alone_gets_every_slot(store: Store) -> None:
    jobs = new_jobs(store, 20, tenant="alone")
    await enqueue(store, *jobs)
    worker = await Worker.open(store, slots=10)
    expect_ids(await worker.take(20), jobs, "jobs leased of a tenant alone")


async def check_no_tenant_takes_more_than_nine_tenths_while_others_wait(store: Store) -> None:
    await enqueue(store, *new_jobs(store, 30, tenant="a"), *new_jobs(store, 30, tenant="b"))
    first, second = await Worker.open(store, "a", slots=4), await Worker.open(store, "b", slots=6)
    taken = [*await first.take(20), *await second.take(20)]
    expect_equal(dict(count_by(taken, "tenant")), {"a": 9, "b": 9}, "slots of two tenants when there are ten")


async def check_jobs_that_are_fetched_ahead_take_none_of_the_nine_tenths(store: Store) -> None:
    await enqueue(store, *new_jobs(store, 40, tenant="a"), *new_jobs(store, 40, tenant="b"))
    first, second = await Worker.open(store, "a", slots=4, prefetch=5), await Worker.open(store, "b", slots=6)
    await second.heartbeat(slots=6, prefetch=2)
    taken = [*await first.take(40), *await second.take(40)]
    expect_equal(dict(count_by(taken, "tenant")), {"a": 16, "b": 16}, "jobs of two tenants, ten slots and seven ahead")
    await first.heartbeat(slots=4)
    await first.settle(*(succeed(job) for job in taken[:9]))
    expect_equal(await first.take(1), [], "jobs leased when less is fetched ahead")


async def check_only_sessions_that_serve_a_queue_count_for_its_nine_tenths(store: Store) -> None:
    for queue in ("default", "other"):
        for tenant in "ab":
            await enqueue(store, *new_jobs(store, 40, tenant=tenant, queue=queue))
    every = await Worker.open(store, "every", slots=10)
    await Worker.open(store, "other", slots=10, prefetch=3, queues=("other", "third"))
    counts = count_by(await every.take(80), "tenant")
    expect_equal(dict(counts), {"a": 9, "b": 9}, "jobs for the ten slots of the session that serves the queue")
    counts = count_by(await every.take(80, queues=("other",)), "tenant")
    expect_equal(dict(counts), {"a": 21, "b": 21}, "jobs for the twenty slots of both sessions, and three ahead")


async def check_queue_that_a_session_names_twice_has_its_slots_once(store: Store) -> None:
    await enqueue(store, *new_jobs(store, 50, tenant="a"), *new_jobs(store, 50, tenant="b"))
    worker = await Worker.open(store, slots=10, queues=("default", "default"))
    taken = await worker.take(50)
    expect_equal(dict(count_by(taken, "tenant")), {"a": 9, "b": 9}, "slots of two tenants when there are ten")
    (session,) = await store.sessions(START)
    expect_equal(session.queues, ("default",), "the queues of the session")


async def check_no_tenant_takes_more_than_nine_tenths_while_others_run(store: Store) -> None:
    await enqueue(store, *new_jobs(store, 30, tenant="a"), new_job(store, tenant="b"))
    worker = await Worker.open(store, slots=20)
    taken = await worker.take(30)
    expect_equal(dict(count_by(taken, "tenant")), {"a": 18, "b": 1}, "slots of two tenants when there are twenty")
    await worker.settle(*(succeed(job) for job in taken if job.tenant == "a"))
    expect_equal(len(await worker.take(30)), 12, "jobs leased after the first have ended")


async def check_ceiling_holds_for_a_minute_after_the_others_were_active(store: Store) -> None:
    await enqueue(store, *new_jobs(store, 30, tenant="a"), new_job(store, tenant="b"))
    worker = await Worker.open(store, slots=10)
    taken = await worker.take(30)
    await worker.settle(*(succeed(job) for job in taken if job.tenant == "b"))
    expect_equal(await worker.take(30, START + 30 * SECOND), [], "jobs leased while the other was active lately")
    rest = await worker.take(30, START + 2 * MINUTE)
    expect_equal(len(rest), 21, "jobs leased when the other was not active for two minutes")


async def check_slots_of_dead_sessions_do_not_count(store: Store) -> None:
    await enqueue(store, *new_jobs(store, 30, tenant="a"), *new_jobs(store, 30, tenant="b"))
    await Worker.open(store, "dying", slots=90, lease=5.0)
    worker = await Worker.open(store, "living", slots=10)
    at = START + 6 * SECOND
    await store.recover(at)
    expect_equal(len(await worker.take(40, at)), 18, "jobs leased of two tenants when ten slots live")


async def check_flood_does_not_starve_a_small_tenant(store: Store) -> None:
    for _ in range(5):
        await enqueue(store, *new_jobs(store, 1_000, tenant="flood"))
    worker = await Worker.open(store, slots=4)
    busy = await worker.take(4)
    await enqueue(store, *new_jobs(store, 10, START + 1, tenant="small"), at=START + 1)
    floods = smalls = 0
    while smalls < 10:
        done, *busy = busy
        leased = (await worker.ask(1, START + 1, [succeed(done, START + 1)])).jobs
        expect(len(leased) == 1, "there is always a job for a free slot")
        busy += leased
        floods, smalls = floods + (leased[0].tenant == "flood"), smalls + (leased[0].tenant == "small")
        expect(floods <= 33, f"{floods} jobs of the flood came before {10 - smalls} of a small tenant")


async def check_flood_in_large_batches_does_not_starve_a_small_tenant(store: Store) -> None:
    for _ in range(5):
        await enqueue(store, *new_jobs(store, 1_000, tenant="flood"))
    await enqueue(store, *new_jobs(store, 10, tenant="small"))
    worker = await Worker.open(store, slots=100)
    order = [job.tenant for job in await worker.take(60)]
    floods = order[: _position(order, "small", 10)].count("flood")
    expect(order.count("small") == 10 and floods <= 33, f"{floods} jobs of the flood came before the tenth small one")


async def check_better_priority_comes_first(store: Store) -> None:
    for priority in (LOW, NORMAL, HIGH, 3, 7):
        await enqueue(store, *new_jobs(store, 2, priority=priority))
    worker = await Worker.open(store)
    order = [job.priority for job in await worker.take(4)] + [job.priority for job in await worker.take(6)]
    expect_equal(order, [1, 1, 3, 3, 5, 5, 7, 7, 9, 9], "priorities in the order of their lease")


async def check_equal_priorities_are_served_oldest_first(store: Store) -> None:
    jobs = [await enqueued(store, START + number) for number in range(10)]
    worker = await Worker.open(store)
    taken = [*await worker.take(5, START + SECOND), *await worker.take(5, START + SECOND)]
    expect_equal([job.id for job in taken], [job.id for job in jobs], "jobs of one lane in the order of their lease")


async def check_equal_lanes_are_served_in_turn(store: Store) -> None:
    for task in "abc":
        await enqueue(store, *new_jobs(store, 5, task=task))
    worker = await Worker.open(store)
    order = [job.task for job in await worker.take(9)] + [job.task for job in await worker.take(6)]
    for start in range(0, 15, 3):
        expect_equal(sorted(order[start : start + 3]), ["a", "b", "c"], f"lanes of the round from {start}")


async def check_every_sixteenth_pick_takes_what_was_served_longest_ago(store: Store) -> None:
    for priority, count in ((HIGH, 60), (NORMAL, 9), (LOW, 3)):
        await enqueue(store, *new_jobs(store, count, priority=priority))
    worker = await Worker.open(store)
    order = [job.priority for job in await worker.take(20)]
    for _ in range(30):
        order += [job.priority for job in await worker.take()]
    others = {pick: priority for pick, priority in enumerate(order, start=1) if priority != HIGH}
    expect_equal(others, {16: LOW, 32: NORMAL, 48: LOW}, "picks that did not take the best priority")


async def check_priority_is_a_matter_inside_a_tenant(store: Store) -> None:
    urgent = new_jobs(store, 9, tenant="loud", priority=HIGH)
    await enqueue(store, *urgent, *new_jobs(store, 9, tenant="modest", priority=LOW))
    worker = await Worker.open(store)
    counts = count_by(await worker.take(10), "tenant")
    expect_equal(dict(counts), {"loud": 5, "modest": 5}, "slots of a tenant that calls everything urgent")


async def check_every_one_of_many_tenants_gets_its_turn(store: Store) -> None:
    tenants = [f"tenant-{number}" for number in range(120)]
    await enqueue(store, *(new_job(store, tenant=tenant) for tenant in tenants for _ in range(2)))
    worker = await Worker.open(store)
    order: list[str] = []
    while len(order) < 240:
        taken = await worker.take(7)
        expect(len(taken) > 0, f"{240 - len(order)} jobs were left behind")
        order += [job.tenant for job in taken]
    expect_equal(sorted(order[:120]), sorted(tenants), "tenants of the first round")


async def check_many_held_lanes_hide_no_open_one(store: Store) -> None:
    tasks = [f"task-{number}" for number in range(80)]
    await enqueue(store, *(new_job(store, task=task, tenant=tenant) for task in tasks for tenant in "ab"))
    await update_limits(store, *(LimitUpdate(subject="task", name=task, permits=0) for task in tasks[:-1]))
    worker = await Worker.open(store)
    taken: list[str] = []
    for _ in range(40):
        claimed = await worker.ask(3)
        taken += [job.task for job in claimed.jobs]
        if claimed.next_at is None or claimed.next_at > START:
            break
    expect_equal(taken, [tasks[-1]] * 2, "tasks leased while all others are held")
    await update_limits(store, *(LimitUpdate(subject="task", name=task, permits=None) for task in tasks[:-1]))
    for _ in range(200):
        taken += [job.task for job in await worker.take(10)]
    expect_equal(len(taken), 160, "jobs leased after all were released")


async def check_held_tenant_does_not_stop_the_others(store: Store) -> None:
    hold = LimitUpdate(subject="tenant", name="held", queue="default", permits=0)
    await update_limits(store, hold)
    await enqueue(store, *new_jobs(store, 5, tenant="held"), *new_jobs(store, 5, tenant="free"))
    worker = await Worker.open(store)
    expect_equal(dict(count_by(await worker.take(5), "tenant")), {"free": 5}, "tenants leased while one is held")
    await update_limits(store, replace(hold, permits=None))
    expect_equal(len(await worker.take(10)), 5, "jobs leased after the release")


async def check_claim_finds_nothing_when_limits_of_idle_tenants_were_updated(store: Store) -> None:
    worker = await Worker.open(store)
    await update_limits(store, _weight("b", 0.1))
    # Tenant b had its share for some rounds to come, so a is next; and a was served three times in a row.
    for tenant, count in (("b", 1), ("a", 3)):
        await enqueue(store, *new_jobs(store, count, tenant=tenant))
        await worker.settle(*(succeed(job) for job in await worker.exactly(count)))
    await update_limits(store, _weight("a", 2.0), _weight("b", 2.0))
    expect_equal(await worker.take(), [], "jobs leased when no tenant has any")
    jobs = new_jobs(store, 2, tenant="b")
    await enqueue(store, *jobs)
    expect_ids(await worker.take(2), jobs, "jobs leased of a tenant that has some again")


async def check_updated_limits_of_idle_tenants_keep_no_slot_from_the_others(store: Store) -> None:
    worker = await Worker.open(store, slots=10)
    await update_limits(store, _weight("idle", 2.0))
    jobs = new_jobs(store, 10, tenant="alone")
    await enqueue(store, *jobs)
    expect_ids(await worker.take(10), jobs, "jobs leased of the only tenant that has any")
