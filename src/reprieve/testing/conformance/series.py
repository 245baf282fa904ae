# ruff: noqa: D103 - a check's name is its sentence, and its numbers stand beside what they are compared with
"""Checks of series: what is counted, for which names and in which buckets of time."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from reprieve.core import change
from reprieve.core.headers import Headers
from reprieve.core.job import Job
from reprieve.core.move import Cancel, Dead, Park, Retry, Return, Snooze
from reprieve.core.series import (
    COUNTERS,
    HISTOGRAM_BUCKETS,
    MAX_LINES,
    OTHERS,
    RUN_FROM,
    WAIT_FROM,
    Line,
    SeriesDelta,
    SeriesPoint,
    SeriesSubject,
    Step,
)
from reprieve.core.status import STUCK_AFTER_SECONDS
from reprieve.errors import ValidationError
from reprieve.stores.protocol import Annotation, Claim, Retention, SeriesRequest, Store
from reprieve.testing.conformance.expect import expect, expect_equal, expect_error
from reprieve.testing.conformance.stage import (
    CANCEL_REQUEST,
    CAUSE,
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
    kill,
    make,
    new_job,
    new_jobs,
    park,
    snooze,
    succeed,
)

BEGIN = START - START % HOUR
"""The beginning of an hour, so that steps of every length begin here."""


def delta(at: int = BEGIN, tenant: str = "", **counts: int) -> SeriesDelta:
    """Return what a session counted in the minute of an instant."""
    numbers: Line = {COUNTERS.index(name): count for name, count in counts.items()}
    return SeriesDelta(at // MINUTE, "default", "send", "", tenant, numbers)


async def count(worker: Worker, *deltas: SeriesDelta, at: int = BEGIN) -> Claim:
    """Let a session say what it has counted; return its claim."""
    worker.number += 1
    claim = Claim(session=worker.session, number=worker.number, now=at, series=deltas)
    await worker.store.claim(claim)
    return claim


async def roll_up(store: Store, at: int = BEGIN) -> None:
    """Add everything that was counted to the lines, and delete nothing."""
    kept = 365 * 86_400.0
    retention = Retention(now=at, succeeded=1_000_000, succeeded_for=kept, cancelled_for=kept, events_for=kept)
    while not (await store.prune(retention)).is_all:
        pass


async def points(
    store: Store,
    subject: SeriesSubject = "all",
    name: str = "",
    step: Step = "minute",
    **fields: Any,  # noqa: ANN401 - of a request
) -> Sequence[SeriesPoint]:
    """Return the points of one name, by default of the whole day from `BEGIN` on."""
    facts = {"since_at": BEGIN, "until_at": BEGIN + DAY, "step": step, "names": (name,)} | fields
    (found,) = await store.series(SeriesRequest(subject=subject, **facts), BEGIN + DAY)
    expect_equal(found.name, name, "the name of a series")
    return found.points


async def total(store: Store, subject: SeriesSubject = "all", name: str = "", at: int = BEGIN) -> dict[str, int]:
    """Return all counters and deaths of one name, after a roll-up."""
    await roll_up(store, at)
    sums: Counter[str] = Counter()
    for point in await points(store, subject, name):
        sums.update(point.counts)
        sums.update({f"died {code}": count for code, count in point.died.items()})
    return dict(sums)


async def taken(store: Store, worker: Worker, at: int = BEGIN, **fields: Any) -> Job:  # noqa: ANN401 - the fields of a job
    """Enqueue a job and let a worker take it."""
    await enqueued(store, at, **fields)
    return await worker.one(at=at)


async def check_enqueues_are_counted_in_their_minute(store: Store) -> None:
    worker = await Worker.open(store, at=BEGIN)
    await enqueue(store, *new_jobs(store, 3, BEGIN + 59_999, tenant="a", dependency="ses"), at=BEGIN + 59_999)
    later = BEGIN + MINUTE
    await enqueue(store, new_job(store, later), new_job(store, later, due_at=later + HOUR), at=later)
    await worker.ask(0, later)  # a store may count enqueues when it claims
    await roll_up(store, later)
    found = {point.at: point.counts for point in await points(store)}
    expect_equal(found, {BEGIN: {"enqueued": 3}, later: {"enqueued": 2}}, "enqueues by minute")
    for subject, name in (("tenant", "a"), ("dependency", "ses")):
        expect_equal(await total(store, subject, name), {"enqueued": 3}, f"enqueues of {subject} {name}")  # type: ignore[arg-type]
    for subject, name in (("queue", "default"), ("task", "send")):
        expect_equal(await total(store, subject, name), {"enqueued": 5}, f"enqueues of {subject} {name}")  # type: ignore[arg-type]


async def check_enqueues_of_one_lane_are_counted_in_the_minute_of_each(store: Store) -> None:
    worker = await Worker.open(store, at=BEGIN)
    for minute, count in ((0, 1), (1, 2), (3, 4)):
        at = BEGIN + minute * MINUTE
        await enqueue(store, *new_jobs(store, count, at, tenant="a"), at=at)
    last = BEGIN + 3 * MINUTE
    await worker.ask(0, last)  # a store may count enqueues when it claims
    await roll_up(store, last)
    found = {(point.at - BEGIN) // MINUTE: point.counts for point in await points(store, "tenant", "a")}
    expect_equal(found, {0: {"enqueued": 1}, 1: {"enqueued": 2}, 3: {"enqueued": 4}}, "enqueues by minute")


async def check_repeated_enqueue_and_a_key_that_is_taken_count_nothing(store: Store) -> None:
    worker = await Worker.open(store, at=BEGIN)
    jobs = [new_job(store, BEGIN, key="k"), new_job(store, BEGIN, key="k"), new_job(store, BEGIN)]
    await enqueue(store, *jobs, at=BEGIN)
    await enqueue(store, *jobs, at=BEGIN)
    await worker.ask(0, BEGIN)
    expect_equal(await total(store), {"enqueued": 2}, "jobs that were stored")


async def check_what_follows_an_attempt_is_counted(store: Store) -> None:
    worker = await Worker.open(store, at=BEGIN)
    wanted = {"enqueued": 0}
    for settled, counts in (
        (lambda job: fail(job, BEGIN), ("retried",)),
        (
            lambda job: make(job, Retry(due_at=BEGIN + HOUR, cause=CAUSE, delay=1.0, charged=False), BEGIN),
            ("retried", "spared"),
        ),
        (lambda job: park(job, BEGIN, BEGIN + HOUR), ("parked", "spared")),
        (lambda job: make(job, Park(gate="g", due_at=BEGIN + HOUR, cause=CAUSE, charged=True), BEGIN), ("parked",)),
        (lambda job: snooze(job, BEGIN, BEGIN + HOUR), ("snoozed",)),
        (lambda job: kill(job, BEGIN), ("died 450",)),
        (
            lambda job: make(job, Dead(death="poison", cause=replace(CAUSE, code=""), spared=True), BEGIN),
            ("died poison", "spared"),
        ),
        (lambda job: make(job, Cancel(reason="enough"), BEGIN), ("cancelled",)),
        (lambda job: make(job, Snooze(due_at=BEGIN + HOUR), BEGIN), ("snoozed",)),
        (lambda job: succeed(job, BEGIN), ()),
    ):
        job = await taken(store, worker, task=f"task-{wanted['enqueued']}")
        expect_equal(await worker.settle(settled(job), at=BEGIN), ["applied"], "the result of a change")  # type: ignore[no-untyped-call]
        wanted["enqueued"] += 1
        for name in counts:
            wanted[name] = wanted.get(name, 0) + 1
    expect_equal(await total(store), wanted, "what is counted")
    expect_equal(await total(store, "queue", "default"), wanted, "what is counted of the queue")
    expect_equal(await total(store, "task", "task-5"), {"enqueued": 1, "died 450": 1}, "what is counted of a task")


async def check_what_people_and_recovery_do_is_counted(store: Store) -> None:
    worker = await Worker.open(store, at=BEGIN)
    job = await taken(store, worker, tenant="a")
    died = kill(job, BEGIN)
    await worker.settle(died, at=BEGIN)
    again = change.retry(died.job, OPERATOR, BEGIN, STUCK_AFTER_SECONDS)
    cancelled = change.cancel(again.job, OPERATOR, BEGIN)
    for made in (again, again, cancelled, change.retry(cancelled.job, OPERATOR, BEGIN, STUCK_AFTER_SECONDS)):
        await store.apply([made], BEGIN)
    second = kill(await worker.one(at=BEGIN), BEGIN)
    await worker.settle(second, at=BEGIN)
    await store.apply([change.revive(second.job, BEGIN)], BEGIN)
    lost = await worker.one(at=BEGIN)
    await store.apply([make(lost, Return(crashed=True), BEGIN)], BEGIN)
    returned = await worker.one(at=BEGIN)
    await store.apply([make(returned, Return(), BEGIN)], BEGIN)
    wanted = {"enqueued": 1, "died 450": 2, "manually_retried": 2, "cancelled": 1, "revived": 1, "recovered": 1}
    expect_equal(await total(store, "tenant", "a"), wanted, "what is counted of the tenant")


async def check_what_the_store_ends_itself_is_counted(store: Store) -> None:
    worker = await Worker.open(store, at=BEGIN)
    await enqueued(store, BEGIN, deadline_at=BEGIN + SECOND, tenant="a")
    await worker.ask(1, BEGIN + MINUTE)
    await enqueued(store, BEGIN, due_at=BEGIN + HOUR, deadline_at=BEGIN + SECOND, tenant="a")
    while (await store.expire(BEGIN + MINUTE)).has_more:
        pass
    job = await taken(store, worker, BEGIN + MINUTE, tenant="a")
    await store.annotate([Annotation(job_id=job.id, now=BEGIN + MINUTE, cancel=CANCEL_REQUEST)])
    await worker.settle(fail(job, BEGIN + MINUTE), at=BEGIN + MINUTE)
    await worker.ask(0, BEGIN + MINUTE)
    wanted = {"enqueued": 3, "died expired": 2, "retried": 1, "cancelled": 1}
    expect_equal(await total(store, "tenant", "a", BEGIN + MINUTE), wanted, "what is counted of the tenant")


async def check_change_that_is_refused_or_repeated_is_counted_once(store: Store) -> None:
    worker = await Worker.open(store, at=BEGIN)
    job = await taken(store, worker)
    await worker.ask(0, BEGIN, [fail(job, BEGIN)])
    await worker.again(0, BEGIN, [fail(job, BEGIN)])
    await worker.settle(fail(job, BEGIN), kill(job, BEGIN), at=BEGIN)
    await store.apply([fail(job, BEGIN), kill(job, BEGIN)], BEGIN)
    expect_equal(await total(store), {"enqueued": 1, "retried": 1}, "what is counted")


async def check_what_a_session_counts_is_added_once(store: Store) -> None:
    one, two = await Worker.open(store, "one", at=BEGIN), await Worker.open(store, "two", at=BEGIN)
    claim = await count(one, delta(started=3, succeeded_1=2, slot_ms=1_500), delta(BEGIN + MINUTE, started=1))
    for _ in range(2):
        await store.claim(claim)
    await count(two, delta(started=4, succeeded_2=1, retry_credits=7))
    await store.claim(claim)
    await roll_up(store)
    found = {point.at: point.counts for point in await points(store, "queue", "default")}
    first = {"started": 7, "succeeded_1": 2, "succeeded_2": 1, "slot_ms": 1_500, "retry_credits": 7}
    expect_equal(found, {BEGIN: first, BEGIN + MINUTE: {"started": 1}}, "what two sessions counted")


async def check_histograms_are_added(store: Store) -> None:
    worker = await Worker.open(store, at=BEGIN)
    waits = SeriesDelta(BEGIN // MINUTE, "default", "send", "", "", {WAIT_FROM: 2, WAIT_FROM + 24: 1, RUN_FROM + 3: 5})
    await count(worker, waits)
    await roll_up(store)
    await count(worker, waits)
    await roll_up(store)
    (found,) = await points(store)
    wanted = [0] * HISTOGRAM_BUCKETS
    wanted[0], wanted[24] = 4, 2
    expect_equal(found.waits, tuple(wanted), "the histogram of waits")
    expect_equal((found.runs[3], sum(found.runs)), (10, 10), "the histogram of run times")


async def check_steps_add_up_and_begin_where_utc_says(store: Store) -> None:
    worker = await Worker.open(store, at=BEGIN)
    ats = (BEGIN, BEGIN + 9 * MINUTE + 59_999, BEGIN + 10 * MINUTE, BEGIN + 59 * MINUTE, BEGIN + HOUR)
    await count(worker, *(delta(at, started=1) for at in ats))
    await roll_up(store)
    found: dict[str, list[tuple[int, int]]] = {}
    for step in ("minute", "ten_minutes", "hour"):
        found[step] = [(point.at - BEGIN, point.counts["started"]) for point in await points(store, step=step)]
    minutes = [(0, 1), (9 * MINUTE, 1), (10 * MINUTE, 1), (59 * MINUTE, 1), (HOUR, 1)]
    expect_equal(found["minute"], minutes, "minutes")
    expect_equal(found["ten_minutes"], [(0, 2), (10 * MINUTE, 1), (50 * MINUTE, 1), (HOUR, 1)], "ten minutes")
    expect_equal(found["hour"], [(0, 4), (HOUR, 1)], "hours")
    part = await points(store, since_at=BEGIN + 9 * MINUTE + 1, until_at=BEGIN + 10 * MINUTE)
    expect_equal([point.at for point in part], [BEGIN + 9 * MINUTE], "the minutes of a part of a minute")


async def check_tenants_beyond_fifty_are_summed(store: Store) -> None:
    worker = await Worker.open(store, at=BEGIN)
    most = MAX_LINES["tenant"]
    crowd = [delta(tenant=f"t{number:03}", started=1 + number) for number in range(most + 5)]
    await count(worker, *crowd)
    await roll_up(store)
    await count(worker, delta(tenant="newcomer", started=1_000), delta(tenant=f"t{most + 4:03}", started=1))
    await roll_up(store)
    names = await store.series_names("tenant", BEGIN, BEGIN + HOUR, BEGIN, 100)
    expect_equal(len(names), most + 1, "names with a line")
    expect_equal((names[0].name, names[0].events), (OTHERS, 1_000 + 1 + 2 + 3 + 4 + 5), "the name with the most jobs")
    expect_equal((names[1].name, names[1].events), (f"t{most + 4:03}", most + 6), "the next")
    expect_equal((await points(store, "tenant", OTHERS))[0].counts, {"started": 1_015}, "the sum of all others")
    expect_equal(await points(store, "tenant", "newcomer"), (), "points of a tenant without a line")
    found = await store.series(SeriesRequest(subject="tenant", since_at=BEGIN, until_at=BEGIN + HOUR), BEGIN)
    expect_equal([one.name for one in found], [one.name for one in names[:20]], "series of the top names")
    total_of_all = sum(point.counts["started"] for point in await points(store))
    expect_equal(total_of_all, 1_000 + 1 + sum(range(1, most + 6)), "starts of all tenants")


async def check_only_the_wanted_measures_and_names_are_read(store: Store) -> None:
    worker = await Worker.open(store, at=BEGIN)
    await count(worker, delta(tenant="a", started=2, succeeded_1=1), delta(tenant="b", started=3))
    await worker.settle(kill(await taken(store, worker, tenant="a"), BEGIN), at=BEGIN)
    await roll_up(store)
    request = SeriesRequest(
        subject="tenant",
        names=("b", "unheard-of", "a"),
        since_at=BEGIN,
        until_at=BEGIN + HOUR,
        measures=("started", "died"),
    )
    found = await store.series(request, BEGIN)
    expect_equal([one.name for one in found], ["b", "unheard-of", "a"], "the names, in their order")
    expect_equal(found[0].points, (SeriesPoint(at=BEGIN, counts={"started": 3}),), "the points of b")
    expect_equal(found[1].points, (), "the points of a name that has none")
    wanted = SeriesPoint(at=BEGIN, counts={"started": 2}, died={"450": 1})
    expect_equal(found[2].points, (wanted,), "the points of a")
    listed = await store.series_names("tenant", BEGIN, BEGIN + HOUR, BEGIN)
    expect_equal([(one.name, one.events) for one in listed], [("a", 5), ("b", 3)], "names by how much happened")
    expect_equal(await store.series_names("tenant", BEGIN + HOUR, BEGIN + DAY, BEGIN), [], "names of another time")


async def check_series_go_when_they_are_kept_no_longer(store: Store) -> None:
    worker = await Worker.open(store, at=BEGIN)
    await count(worker, delta(started=1), delta(BEGIN + 2 * HOUR, started=1))
    await roll_up(store)
    pruned = await store.prune(
        Retention(now=BEGIN + 3 * HOUR, series_minutes_for=3_600.0, series_hours_for=3 * 3_600.0)
    )
    expect_equal(pruned.series, 3, "lines that went: the minute of all, of the queue and of the task")
    expect_equal([point.at for point in await points(store)], [BEGIN + 2 * HOUR], "minutes that are left")
    expect_equal(len(await points(store, step="ten_minutes")), 2, "ten minutes that are left")
    expect_equal(len(await points(store, step="hour")), 2, "hours that are left")
    pruned = await store.prune(Retention(now=BEGIN + 401 * DAY))
    expect(pruned.series > 0, "old lines are pruned")
    for step in ("minute", "ten_minutes", "hour"):
        expect_equal(await points(store, step=step), (), f"points in steps of {step}")


async def check_request_for_series_that_makes_no_sense_is_refused(store: Store) -> None:
    good = SeriesRequest(subject="queue", names=("default",), since_at=BEGIN, until_at=BEGIN + HOUR)
    for wrong in (
        replace(good, since_at=BEGIN + HOUR),
        replace(good, until_at=BEGIN - 1),
        replace(good, since_at=BEGIN + 0.5),
        replace(good, step="second"),
        replace(good, subject="group"),
        replace(good, measures=("failed",)),
        replace(good, names=tuple(f"q{number}" for number in range(21))),
        replace(good, names=("a\0b",)),
        replace(good, subject="all"),
        replace(good, since_at=BEGIN - 2 * DAY, until_at=BEGIN - 2 * DAY + HOUR),
        replace(good, since_at=BEGIN - 15 * DAY, until_at=BEGIN - 14 * DAY, step="ten_minutes"),
        replace(good, since_at=BEGIN - 402 * DAY, until_at=BEGIN - 401 * DAY, step="hour"),
        replace(good, since_at=BEGIN - 13 * DAY, until_at=BEGIN, step="ten_minutes"),
        replace(good, names=("a", "b", "c", "d", "e"), until_at=BEGIN + DAY),
        replace(good, names=(), until_at=BEGIN + DAY),
    ):
        await expect_error(store.series(wrong, BEGIN), ValidationError, f"{wrong!r:.200}")
    for subject, since_at, until_at, limit in (
        ("group", BEGIN, BEGIN + 1, 1),
        ("queue", BEGIN, BEGIN, 1),
        ("queue", BEGIN, BEGIN + 1, 0),
    ):
        wanted = store.series_names(subject, since_at, until_at, BEGIN, limit)  # type: ignore[arg-type]
        await expect_error(
            wanted, ValidationError, f"names of {subject} from {since_at} to {until_at}, {limit} of them"
        )


async def check_counts_and_retention_that_make_no_sense_are_refused(store: Store) -> None:
    worker = await Worker.open(store, at=BEGIN)
    good = delta(started=1)
    for wrong in (
        SeriesDelta(-1, "default", "send", "", "", {0: 1}),
        SeriesDelta(good.minute, "", "send", "", "", {0: 1}),
        SeriesDelta(good.minute, "default", "send", "", "a\0b", {0: 1}),
        SeriesDelta(good.minute, "default", "send", "", "", {0: -1}),
        SeriesDelta(good.minute, "default", "send", "", "", {1_000: 1}),
        SeriesDelta(good.minute, "default", "send", "", "", {"450": 1}),
    ):
        await expect_error(count(worker, good, wrong), ValidationError, f"{wrong!r}")
    for retention in (
        Retention(now=BEGIN, series_minutes_for=0.0),
        Retention(now=BEGIN, series_ten_minutes_for=-1.0),
        Retention(now=BEGIN, series_hours_for=float("nan")),
        Retention(now=BEGIN, series_minutes_for=2 * 86_400.0),
    ):
        await expect_error(store.prune(retention), ValidationError, f"{retention!r}")
    expect_equal(await total(store), {}, "what is counted")


async def check_headers_do_not_matter_to_what_a_store_counts(store: Store) -> None:
    worker = await Worker.open(store, at=BEGIN)
    job = await taken(store, worker, headers=Headers(credits=5))
    await worker.settle(fail(job, BEGIN), at=BEGIN)
    expect_equal(await total(store), {"enqueued": 1, "retried": 1}, "what is counted: workers count credits")
