# ruff: noqa: D103 - a check's name is its sentence, and its numbers stand beside what they are compared with
"""Checks of values: enum members count as their values, and what could not be read back is refused by itself."""

import math
from collections.abc import Callable
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from typing import Any

from msgspec.structs import replace

from reprieve.core.change import Change
from reprieve.core.headers import Headers
from reprieve.core.job import CancelRequest, Cause, Job
from reprieve.core.move import Cancel, Dead, Retry
from reprieve.core.values import MAX_WHOLE
from reprieve.errors import InvalidName, ValidationError
from reprieve.stores.protocol import Annotation, Filter, LimitUpdate, Store
from reprieve.testing.conformance.expect import expect, expect_equal, expect_error, expect_ids, expect_job
from reprieve.testing.conformance.stage import (
    CAUSE,
    PROGRAM,
    SECOND,
    START,
    Worker,
    enqueue,
    enqueued,
    fail,
    find_all,
    get,
    kill,
    make,
    new_job,
    new_jobs,
    succeed,
    update_limits,
)


class Older(str, Enum):  # noqa: UP042 - the older form
    """Names in the older form, in which a member formats as its own name."""

    MAIL = "mail"
    ACME = "acme"


class Newer(StrEnum):
    """Names in the newer form."""

    MAIL = "mail"
    ACME = "acme"


class Level(IntEnum):
    """Priorities and limits."""

    FIRST = 1


async def check_enum_members_count_as_their_values(store: Store) -> None:
    worker = await Worker.open(store)
    for names, queue in ((Older, "mail"), (Newer, Newer.MAIL), (Older, Older.MAIL)):
        wanted = new_job(store, queue="mail", tenant="acme", task="mail", dependency="mail", group="mail", priority=1)
        fields: dict[str, Any] = dict.fromkeys(("queue", "task", "dependency", "group"), names.MAIL)
        job = replace(wanted, **fields, tenant=names.ACME, priority=Level.FIRST)
        await enqueue(store, job)
        ready = Filter(queues=(names.MAIL,), tenants=(names.ACME,), tasks=(names.MAIL,), statuses=frozenset({"ready"}))
        found = await find_all(store, ready)
        expect_ids(found, [wanted], f"jobs found by {names.__name__}")
        expect_job(await get(store, wanted), wanted)
        (leased,) = await worker.take(1, queues=(queue,))
        expect_equal(leased.id, wanted.id, f"the job leased from {queue!r}")
        held = (leased.queue, leased.tenant, leased.task, leased.dependency, leased.group, leased.priority)
        expect_equal({type(value) for value in held}, {str, int}, "the types of what is leased")
        expect_equal(await worker.settle(succeed(leased)), ["applied"], "the result")


_LISTS = {
    "queue": "queues",
    "tenant": "tenants",
    "task": "tasks",
    "dependency": "dependencies",
    "code": "codes",
    "fingerprint": "fingerprints",
}
"""Fields of a filter that have several names."""


async def check_filter_that_no_job_can_match_is_refused(store: Store) -> None:
    await enqueued(store)
    for name in ("queue", "tenant", "task", "dependency", "key", "code", "fingerprint", "session"):
        for value in ("a\0b", "a\ud800b", "a\nb", 5):
            field = _LISTS.get(name, name)
            wanted = Filter(**{field: (value,) if name in _LISTS else value})  # type: ignore[arg-type]  # that is the point
            await expect_error(store.find(wanted, START), InvalidName, f"find with {name}={value!r}")
            await expect_error(store.tally("status", wanted, START), InvalidName, f"tally with {name}={value!r}")


async def check_limits_of_enum_members_hold_for_their_values(store: Store) -> None:
    worker = await Worker.open(store)
    await enqueue(store, *new_jobs(store, 3, queue="mail", dependency="mail"))
    await update_limits(store, LimitUpdate(subject="dependency", name=Older.MAIL, max_running=Level.FIRST))
    expect_equal(len(await worker.take(3, queues=("mail",))), 1, "jobs leased of a dependency that runs one at a time")


async def check_values_of_the_wrong_type_are_refused_and_nothing_is_stored(store: Store) -> None:
    wrong: dict[str, tuple[Any, ...]] = {
        "priority": (True, 1.0, "1", None),
        "max_attempts": (5.0, True, "5", 10**30, 0),
        "key": (None, 5, b"k"),
        "queue": (None, 5, ["mail"]),
        "tenant": (None,),
        "dependency": (5,),
        "due_at": (1.5, None, math.nan, 10**30, True),
        "created_at": (1.5,),
        "deadline_at": (1.5, "soon"),
        "timeout": ("5s", math.nan, math.inf, -1.0, True),
        "key_ttl": (math.nan, "1h"),
        "payload": ("text", None),
        "override": ({"max_attempts": 3},),
        "headers": (
            *({"origin": "import"}, {}, ""),
            *(Headers(tags=tags) for tags in (("a\nb",), ("x" * 65,), ("",), ("a", "a"), tuple(map(str, range(17))))),
            *(Headers(own=own) for own in ({"Origin": "x"}, {"user": "x"}, {"a": "x\0"}, {"a": "x" * 513})),
            *(Headers(traceparent="00-abc"), Headers(parent="42"), Headers(user="x" * 257), Headers(sla_at=10**30)),
            *(replace(Headers(), **{name: None}) for name in ("traceparent", "parent", "linked")),
            *(replace(Headers(), **{name: 0}) for name in ("traceparent", "parent", "linked")),
            Headers(own={f"h{n}": "x" * 300 for n in range(16)}),
        ),
    }
    for name, values in wrong.items():
        for value in values:
            jobs = [new_job(store), replace(new_job(store), **{name: value})]
            await expect_error(enqueue(store, *jobs), ValidationError, f"enqueue with {name}={value!r}")
    expect_equal(await find_all(store, Filter()), [], "jobs after enqueues that were refused")
    job = await enqueued(store, priority=1, max_attempts=5)
    expect_job(await get(store, job), job, "a job with the same values in the right type")


async def check_limits_of_the_wrong_type_are_refused(store: Store) -> None:
    wrong: dict[str, tuple[Any, ...]] = {"max_running": (1.5, True, "1", -1), "permits": (0.5,), "rate": ("5/s",)}
    for name, values in wrong.items():
        for value in values:
            update = LimitUpdate(subject="task", name="send", **{name: value})
            await expect_error(store.update_limits([update], START, PROGRAM), ValidationError, f"{name}={value!r}")
    for weight in (True, "2", math.nan):
        update = LimitUpdate(subject="tenant", name="acme", queue="default", weight=weight)  # type: ignore[arg-type]  # that is the point
        await expect_error(store.update_limits([update], START, PROGRAM), ValidationError, f"weight={weight!r}")


def _retry(**fields: Any) -> Callable[[Job], Change]:  # noqa: ANN401 - the fields of a retry, of any type
    facts: dict[str, Any] = {"due_at": START + SECOND, "cause": CAUSE, "delay": 1.0} | fields
    return lambda job: make(job, Retry(**facts))


_UNWRITABLE: dict[str, Callable[[Job], Change]] = {
    "a code that is a number": _retry(cause=Cause(reason="x", code=503)),  # type: ignore[arg-type]  # that is the point
    "a code with NUL": lambda job: kill(job, cause=Cause(reason="x", code="a\0b")),
    "a code with a lone surrogate": lambda job: kill(job, cause=Cause(reason="x", code="a\ud800b")),
    "a reason that is no text": _retry(cause=Cause(reason=None)),  # type: ignore[arg-type]  # as above
    "a wait that is a Decimal": _retry(delay=Decimal(5)),
    "a wait that is a text": _retry(delay="soon"),
    "a time that is a fraction": _retry(due_at=START + 0.5),
    "a time that is too late": _retry(due_at=10**30),
    "a limit that is a fraction": _retry(max_attempts=2.5),
    "a version that is too high": lambda job: replace(fail(job), job=replace(fail(job).job, version=MAX_WHOLE + 1)),
    "a dead job without a reason": lambda job: kill(job, cause=Cause(reason="  ")),
    "a dead job without a cause": lambda job: replace(kill(job), job=replace(kill(job).job, cause=None)),
}


async def check_change_that_cannot_be_stored_is_refused_alone(store: Store) -> None:
    worker = await Worker.open(store)
    for what, change_of in _UNWRITABLE.items():
        await enqueue(store, *new_jobs(store, 3))
        one, bad, two = await worker.exactly(3)
        results = await worker.settle(succeed(one), change_of(bad), fail(two))
        expect_equal(results, ["applied", "refused", "applied"], f"the results beside {what}")
        expect_job(await get(store, bad), bad, f"the job after {what}")
        expect_equal(await worker.settle(succeed(bad)), ["applied"], f"the next result after {what}")


async def check_change_of_a_person_that_cannot_be_stored_is_refused_alone(store: Store) -> None:
    for what, death in (("no reason", Cause(reason="")), ("NUL", Cause(reason="x", code="\0"))):
        jobs = new_jobs(store, 3)
        await enqueue(store, *jobs)
        one, bad, two = jobs
        results = await store.apply(
            [kill(one), make(bad, Dead(death="manual", cause=death)), make(two, Cancel(by="ana", reason="why"))], START
        )
        expect_equal(results, ["applied", "refused", "applied"], f"the results beside a death with {what}")
        expect_job(await get(store, bad), bad, f"the job after a death with {what}")


async def check_result_that_cannot_be_stored_is_refused_alone(store: Store) -> None:
    worker = await Worker.open(store)
    await enqueue(store, *new_jobs(store, 3))
    one, bad, two = await worker.exactly(3)
    results = await worker.settle(
        succeed(one), succeed(bad, result=b"1", ttl=math.nan), succeed(two, result=b"2", ttl=60)
    )
    expect_equal(results, ["applied", "refused", "applied"], "the results")
    expect_equal(await store.result(two.id), b"2", "the result of the job beside it")


async def check_long_cancel_request_is_cut_and_the_store_stays_readable(store: Store) -> None:
    worker = await Worker.open(store)
    await enqueue(store, *new_jobs(store, 2))
    running, other = await worker.exactly(2)
    request = CancelRequest(by="a\0na\n" * 100, reason="\ud800\x1b[31mwhy " * 9_000)
    expect_equal(
        await store.annotate([Annotation(job_id=running.id, now=START, cancel=request)]), [True], "whether it runs"
    )
    found = await get(store, running)
    expect_equal(found and found.cancel_request, request, "the request as it is read")
    expect(request.reason.endswith("characters)"), "a request that was cut says so")
    # A retry becomes the cancellation that was requested, in a write that the store itself makes.
    expect_equal(await worker.settle(fail(running), fail(other)), ["applied"] * 2, "the results")
    cancelled = await get(store, running)
    expect_equal(cancelled and cancelled.state, "cancelled", "the state of the job")
    events = [event for _, event in await store.events()]
    cancels = [event.move for event in events if isinstance(event.move, Cancel)]
    expect_equal([(move.by, move.reason) for move in cancels], [(request.by, request.reason)], "the events of cancels")
    expect_equal(len(await find_all(store, Filter())), 2, "jobs that are found")
