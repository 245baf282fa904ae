"""Tasks: what can be said about them and about their jobs, and what they may say themselves."""

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from copy import copy
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, ParamSpec, TypeVar, cast

import msgspec
import pydantic
import pytest

from reprieve import Cancel, Fail, Job, Policy, Reprieve, Retry, Snooze, Task, current_job
from reprieve.backoff import fixed
from reprieve.context import Running
from reprieve.errors import (
    DuplicateTask,
    InvalidDependency,
    InvalidDuration,
    InvalidName,
    InvalidTask,
    NotRunning,
    PayloadTooLarge,
    UnserialisableArgument,
    ValidationError,
)
from reprieve.testing import FakeClock, adrain, drain
from reprieve.worker.middleware import Proceed

P = ParamSpec("P")
R = TypeVar("R")

REFUSED = ConnectionError("refused")


@pytest.fixture
def send(app: Reprieve) -> Task[[int], None]:
    @app.task(name="send")
    def send(user: int) -> None:
        """Send something."""

    return send


def stored(app: Reprieve, task: Task[[int], None]) -> Job:
    return task.enqueue(1).fetch()


# declaring


def test_called_directly_a_task_is_still_a_plain_function(app: Reprieve) -> None:
    @app.task
    def double(number: int) -> int:
        """Double a number."""
        return number * 2

    assert double(21) == 42
    assert (vars(double)["__name__"], double.__doc__) == ("double", "Double a number.")
    assert double.name.endswith("test_called_directly_a_task_is_still_a_plain_function.<locals>.double")
    assert repr(double) == f"<Task {double.name}>"


def test_two_functions_cannot_share_a_name(app: Reprieve) -> None:
    def one() -> None: ...

    def other() -> None: ...

    app.task(name="send")(one)
    app.task(name="send")(one)
    with pytest.raises(DuplicateTask, match=r"'send': .*one and .*other; give one of them another name") as refused:
        app.task(name="send")(other)
    assert refused.value.code == "duplicate_task"


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"executor": "fiber"}, "must be one of async, thread, process, got 'fiber'"),
        ({"executor": "async"}, "is a plain function and cannot run as 'async'"),
        ({"priority": 0}, "must be 1–9, 1 first, got 0"),
        ({"priority": 10}, "must be 1–9, 1 first, got 10"),
        ({"priority": True}, "must be 1–9, 1 first, got True"),
        ({"priority": "high"}, "got 'high'"),
        ({"timeout": 0}, "must be more than 0"),
        ({"queue": 3}, "queue of task .* must be text, got 3"),
        ({"name": ""}, "name of task .* must be text, got ''"),
        ({"policy": "email"}, r"must be a Policy, got 'email'; write policy=presets\.email"),
        ({"policy": {"max_attempts": 3}}, r"must be a Policy, got \{'max_attempts': 3\}"),
        ({"policy": "mine"}, r"must be a Policy, got 'mine'; write policy=Policy\(max_attempts=5\) or presets\.email"),
        ({"max_attempts": 2}, r"belongs to the policy: policy=Policy\(max_attempts=2\)"),
        ({"max_retries": 2}, r"belongs to the policy: policy=Policy\(retries=2\)"),
        ({"retry_delay": "5s"}, r"belongs to the policy: policy=Policy\(backoff=Exponential\('5s'\)\)"),
        ({"backoff": fixed("5s")}, r"belongs to the policy: policy=Policy\(backoff=…\)"),
        ({"tenant": "acme"}, r"belongs to a job: \.using\(tenant=…\)\.enqueue"),
        ({"time_out": "5s"}, "has no option 'time_out' .*; did you mean timeout?"),
        ({"colour": "blue"}, "has no option 'colour' .*; the options are name, queue, policy"),
    ],
)
def test_a_task_that_could_not_work_is_refused_where_it_is_declared(
    app: Reprieve, options: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(InvalidTask, match=complaint):
        app.task(**options)(lambda: None)


def test_only_a_function_can_be_a_task(app: Reprieve) -> None:
    with pytest.raises(InvalidTask, match=r"is not a function; @app\.task goes on top of one"):
        app.task(cast("Callable[[], None]", functools.partial(print, "a")))
    with pytest.raises(InvalidTask, match=r"'mail' is not a function; write @app\.task\(queue='mail'\)"):
        app.task(cast("Callable[[], None]", "mail"))


@pytest.mark.parametrize("timeout", ["x", object(), True, -1])
def test_a_timeout_that_is_no_length_of_time_is_refused(app: Reprieve, timeout: Any) -> None:  # noqa: ANN401 - the point
    with pytest.raises(InvalidDuration, match=r"timeout of task send .*must be a duration"):
        app.task(name="send", timeout=timeout)(lambda: None)


def test_a_dependency_of_a_task_that_is_no_name_is_refused(app: Reprieve) -> None:
    with pytest.raises(InvalidDependency, match="must be a name or a function of the arguments, got 5"):
        app.task(dependency=cast("str", 5))(lambda: None)


# options of a job


def test_what_is_not_said_is_taken_from_the_task(app: Reprieve, clock: FakeClock) -> None:
    @app.task(queue="mail", priority=2, dependency="ses", policy=Policy(max_attempts=4, deadline="1h"))
    def send(user: int) -> None: ...

    job = stored(app, send)
    assert (job.queue, job.priority, job.dependency, job.max_attempts) == ("mail", 2, "ses", 4)
    assert (job.tenant, job.group, job.key, job.override) == ("", "", "", None)
    assert (job.created_at, job.due_at, job.waiting_for) == (clock.now(), clock.now(), "turn")
    assert job.deadline_at == clock.now() + 3_600_000


def test_every_option_of_a_job_is_stored(app: Reprieve, send: Task[[int], None], clock: FakeClock) -> None:
    job = stored(
        app,
        send.using(tenant="acme", queue="bulk", priority=9, key="welcome-1", key_ttl="2h", group="batch").using(
            dependency="smtp", deadline=timedelta(hours=2), delay="5m"
        ),
    )
    assert (job.tenant, job.queue, job.priority, job.key, job.key_ttl) == ("acme", "bulk", 9, "welcome-1", 7_200)
    assert (job.group, job.dependency) == ("batch", "smtp")
    assert (job.deadline_at, job.due_at) == (clock.now() + 7_200_000, clock.now() + 300_000)
    assert job.waiting_for == "schedule"


def test_a_job_can_wait_for_a_moment(app: Reprieve, send: Task[[int], None], clock: FakeClock) -> None:
    later = clock.moment + timedelta(hours=3)
    assert stored(app, send.using(at=later)).due_at == clock.now() + 3 * 3_600_000
    past = clock.moment - timedelta(hours=3)
    assert stored(app, send.using(at=past)).due_at == clock.now()


@pytest.mark.parametrize(
    ("options", "error", "complaint"),
    [
        ({"colour": "blue"}, ValidationError, "a job has no option 'colour'; the options are tenant, queue"),
        ({"at": datetime(2030, 1, 1, tzinfo=UTC), "delay": 1}, ValidationError, "either at or delay, not both"),
        ({"at": datetime(2030, 1, 1)}, ValidationError, "a datetime with a time zone"),  # noqa: DTZ001 - the point
        ({"delay": "5 minuts"}, InvalidDuration, "delay must be .* got '5 minuts'"),
        ({"delay": -1}, InvalidDuration, "delay must be .* got -1"),
        ({"deadline": "soon"}, InvalidDuration, "deadline must be .* got 'soon'"),
        ({"key_ttl": "soon"}, InvalidDuration, "key_ttl must be .* got 'soon'"),
        ({"retry_delay": "soon"}, InvalidDuration, "retry_delay must be .* got 'soon'"),
        ({"max_retry_delay": "soon"}, InvalidDuration, "max_retry_delay must be .* got 'soon'"),
        ({"max_attempts": 0}, ValidationError, "max_attempts must be .* got 0"),
        ({"queue": ""}, ValidationError, "option queue of a job must not be empty"),
        ({"tenant": "a" * 256}, InvalidName, "tenant"),
        ({"key": "a\x00b"}, InvalidName, "key"),
        ({"priority": 0}, ValidationError, "must be 1–9, 1 first, got 0"),
        ({"priority": 10}, ValidationError, "must be 1–9, 1 first, got 10"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused_before_anything_is_stored(
    app: Reprieve, send: Task[[int], None], options: dict[str, Any], error: type[Exception], complaint: str
) -> None:
    with pytest.raises(error, match=complaint):
        send.using(**options).enqueue(1)
    assert drain(app).ran == 0


@pytest.mark.parametrize(
    ("options", "error", "complaint"),
    [
        ({"tenant": 42}, ValidationError, "option tenant of a job must be text, got 42"),
        ({"queue": 3}, ValidationError, "option queue of a job must be text, got 3"),
        ({"group": 1}, ValidationError, "option group of a job must be text, got 1"),
        ({"key": None}, ValidationError, "option key of a job must be text, got None; leave it out"),
        ({"priority": True}, ValidationError, "priority of a job must be 1–9, 1 first, got True"),
        ({"priority": "high"}, ValidationError, "got 'high'"),
        ({"max_attempts": 5.0}, ValidationError, r"max_attempts must be a whole number of 1 or more, got 5\.0"),
        ({"max_attempts": True}, ValidationError, "max_attempts must be a whole number of 1 or more, got True"),
        ({"delay": None}, InvalidDuration, "delay must be a duration .* got None"),
        ({"delay": 10**400}, InvalidDuration, "must be a duration"),
        ({"deadline": -1}, InvalidDuration, "deadline must be a duration .* got -1"),
        ({"at": "tomorrow"}, ValidationError, "must be a datetime with a time zone, got 'tomorrow'"),
        ({"dependency": 5}, InvalidDependency, "must be a name or a function of the arguments, got 5"),
        ({"countdown": 5}, ValidationError, "a job has no option 'countdown'; write delay=$"),
        ({"eta": None}, ValidationError, "a job has no option 'eta'; write at=$"),
        ({"tennant": "acme"}, ValidationError, "a job has no option 'tennant'; did you mean tenant?"),
        (
            {"eta": 1, "tennant": "a"},
            ValidationError,
            "'eta'; write at=; a job has no option 'tennant'; did you mean t",
        ),
    ],
)
def test_an_option_of_the_wrong_type_is_refused_where_it_is_given(
    send: Task[[int], None], options: dict[str, Any], error: type[Exception], complaint: str
) -> None:
    with pytest.raises(error, match=complaint):
        send.using(**options)


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("delay", r"a task has no method 'delay'; write \.enqueue\(…\)"),
        ("apply_async", r"\.using\(delay=60, queue='mail'\)\.enqueue\(…\)"),
        ("colour", "^'Task' object has no attribute 'colour'$"),
    ],
)
def test_a_method_of_another_system_is_answered_with_ours(send: Task[[int], None], name: str, instead: str) -> None:
    with pytest.raises(AttributeError, match=instead):
        getattr(send, name)
    assert not hasattr(send, name)


def test_a_task_can_be_copied(app: Reprieve, send: Task[[int], None]) -> None:
    assert stored(app, copy(send)).task == send.name


def test_options_do_not_stick_to_the_task(app: Reprieve, send: Task[[int], None]) -> None:
    acme = send.using(tenant="acme")
    assert stored(app, acme.using(priority=1)).tenant == "acme"
    assert stored(app, acme).priority == 5
    assert stored(app, send).tenant == ""


def test_the_same_key_answers_the_job_that_exists(app: Reprieve, send: Task[[int], None]) -> None:
    first = send.using(key="welcome-1").enqueue(1)
    again = send.using(key="welcome-1").enqueue(2)
    assert (first.is_new, again.is_new) == (True, False)
    assert again.id == first.id
    assert send.using(key="welcome-1", tenant="acme").enqueue(1).is_new
    assert send.using(key="welcome-2").enqueue(1).is_new


def test_a_key_is_remembered_after_its_job_for_as_long_as_it_should_be(
    app: Reprieve, send: Task[[int], None], clock: FakeClock
) -> None:
    short = send.using(key="welcome-1", key_ttl="1h")
    first = short.enqueue(1)
    drain(app)
    clock.advance("59m")
    assert short.enqueue(1).id == first.id
    clock.advance("2m")
    assert short.enqueue(1).is_new


def test_a_dead_job_keeps_its_key(app: Reprieve) -> None:
    @app.task(policy=Policy(max_attempts=1))
    def fail(user: int) -> None:
        raise REFUSED

    first = fail.using(key="a").enqueue(1)
    assert drain(app).dead == 1
    assert fail.using(key="a").enqueue(1).id == first.id


def test_the_retry_settings_of_one_job_give_exactly_its_waits(app: Reprieve, clock: FakeClock) -> None:
    moments: list[int] = []

    @app.task
    def fail(user: int) -> None:
        moments.append(clock.now())
        raise REFUSED

    job = fail.using(max_attempts=5, retry_delay=60, max_retry_delay="1h").enqueue(1)
    assert drain(app).dead == 1
    waits = [(later - sooner) / 1_000 for sooner, later in pairwise(moments)]
    assert waits == [60, 120, 240, 480]
    assert job.fetch().death == "exhausted"


# dependencies


def test_a_dependency_can_be_a_function_of_the_arguments(app: Reprieve) -> None:
    asked: list[str] = []

    def domain(address: str) -> str:
        asked.append(address)
        return address.partition("@")[2]

    @app.task(dependency=domain, policy=Policy(max_attempts=3, backoff=fixed("1s")))
    def send(address: str) -> None:
        raise REFUSED

    job = send.enqueue("ana@example.com")
    drain(app)
    assert job.fetch().dependency == "example.com"
    assert asked == ["ana@example.com"]
    other = send.using(dependency=lambda address: address[:3]).enqueue("bea@example.com")
    assert other.fetch().dependency == "bea"


@pytest.mark.parametrize(
    ("dependency", "complaint"),
    [(lambda user: {}[user], "cannot be computed: KeyError: 1"), (lambda user: user, "must return a name, got 1")],
)
def test_an_enqueue_fails_when_its_dependency_cannot_be_told(
    app: Reprieve, dependency: Callable[..., object], complaint: str
) -> None:
    @app.task(dependency=dependency)
    def send(user: int) -> None: ...

    with pytest.raises(InvalidDependency, match=complaint):
        send.enqueue(1)
    assert drain(app).ran == 0


# what can be a task


def plainly(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate as people do who think of plain functions."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        return function(*args, **kwargs)

    return call


def test_an_async_function_inside_a_plain_decorator_is_run_to_its_end(app: Reprieve) -> None:
    threads: list[threading.Thread] = []
    seen: list[object] = []

    async def note(running: Running, proceed: Proceed) -> object:
        seen.append(value := await proceed())
        return value

    @app.task(result_ttl="1h")
    @plainly
    async def double(number: int) -> int:
        await asyncio.sleep(0)
        threads.append(threading.current_thread())
        assert current_job().attempt == 1
        return 2 * number

    app.middleware.append(note)
    job = double.enqueue(21)
    assert drain(app).succeeded == 1
    assert job.result() == 42
    assert (seen, threads) == ([42], [threading.current_thread()])


def test_an_async_function_inside_a_plain_decorator_can_fail_and_overrun(app: Reprieve) -> None:
    @app.task(policy=Policy(max_attempts=1), timeout="50ms")
    @plainly
    async def work(*, is_slow: bool) -> None:
        if is_slow:
            await asyncio.Event().wait()
        raise REFUSED

    work.enqueue(is_slow=True)
    work.enqueue(is_slow=False)
    assert sorted(attempt.reason for attempt in drain(app).attempts) == [
        "refused",
        "timed out after 0.05 s",
    ]


def test_a_generator_cannot_be_a_task(app: Reprieve) -> None:
    def numbers() -> Iterator[int]:
        yield 1

    async def letters() -> AsyncIterator[str]:
        yield "a"

    for function in (numbers, letters):
        with pytest.raises(InvalidTask, match="is a generator; a task must return its result"):
            app.task(function)


# arguments


@dataclass
class Order:
    number: int
    placed: datetime


class Line(msgspec.Struct):
    article: str
    price: float


class Customer(pydantic.BaseModel):
    name: str
    born: datetime


def test_arguments_arrive_as_what_they_were(app: Reprieve) -> None:
    seen: list[object] = []

    @app.task
    def ship(order: Order, lines: list[Line], customer: Customer, *, tags: set[str], note: str | None = None) -> None:
        seen.extend([order, lines, customer, tags, note])

    noon = datetime(2030, 1, 1, 12, tzinfo=UTC)
    arguments = (Order(7, noon), [Line("bread", 2.5)], Customer(name="Ana", born=noon))
    ship.enqueue(*arguments, tags={"fresh"})
    assert drain(app).succeeded == 1
    assert seen == [*arguments, {"fresh"}, None]


def test_an_argument_that_is_no_data_is_refused_at_enqueue(app: Reprieve) -> None:
    @app.task(name="keep")
    def keep(thing: object) -> None: ...

    with pytest.raises(UnserialisableArgument, match="cannot be stored as JSON") as refused:
        keep.enqueue(object())
    assert refused.value.code == "unserialisable_argument"


@pytest.mark.parametrize(
    ("args", "kwargs"), [((), {}), ((1, 2), {}), ((1,), {"colour": "blue"}), ((1,), {"user": 2})], ids=str
)
def test_arguments_that_the_function_does_not_take_are_refused_at_enqueue(
    send: Task[[int], None], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    with pytest.raises(UnserialisableArgument, match="cannot be called with these arguments"):
        send.enqueue(*args, **kwargs)


def test_arguments_that_are_too_large_are_refused_at_enqueue(app: Reprieve) -> None:
    @app.task
    def keep(text: str) -> None: ...

    with pytest.raises(PayloadTooLarge):
        keep.enqueue("a" * 300_000)


# what a task may say


@pytest.mark.parametrize("way", ["raised", "returned"])
def test_signals_say_the_same_raised_and_returned(app: Reprieve, way: str, clock: FakeClock) -> None:
    start = clock.now()

    @app.task(policy=Policy(max_attempts=5, backoff=fixed("1h")))
    def say(signal: str) -> object:
        signals = {"snooze": Snooze("5m"), "cancel": Cancel("done with it"), "fail": Fail("no such order")}
        wanted = signals.get(signal, Retry("busy", after="10m"))
        if way == "raised":
            raise wanted
        return wanted

    snoozed, cancelled, failed, retried = (say.enqueue(word) for word in ("snooze", "cancel", "fail", "retry"))
    drain(app, within=0)
    job = snoozed.fetch()
    assert (job.state, job.due_at, job.charged, job.snoozes) == ("waiting", start + 300_000, 0, 1)
    assert cancelled.fetch().state == "cancelled"
    job = failed.fetch()
    assert (job.state, job.death, job.cause and job.cause.reason) == ("dead", "permanent", "no such order")
    job = retried.fetch()
    assert (job.state, job.due_at, job.charged) == ("waiting", start + 600_000, 1)
    assert job.cause is not None
    assert job.cause.reason == "busy"


def test_a_retry_without_a_wait_takes_the_policys(app: Reprieve, clock: FakeClock) -> None:
    @app.task(policy=Policy(max_attempts=5, backoff=fixed("1h")))
    def again() -> None:
        raise Retry

    job = again.enqueue()
    drain(app, within=0)
    assert job.fetch().due_at == clock.now() + 3_600_000


def test_a_retry_remembers_the_error_that_it_was_raised_from(app: Reprieve) -> None:
    @app.task
    def again() -> None:
        raise Retry(after="1s") from REFUSED

    job = again.enqueue()
    drain(app, within=0)
    cause = job.fetch().cause
    assert cause is not None
    assert cause.reason == "refused"


# the running job


def test_a_task_can_see_the_job_that_it_runs_for(app: Reprieve) -> None:
    seen: list[tuple[object, ...]] = []

    @app.task(policy=Policy(max_attempts=2, backoff=fixed("1s")))
    def look() -> None:
        job = current_job()
        seen.append((job.id, job.tenant, job.attempt, job.idempotency_key, job.is_stopping))
        tokens.append(job.fencing_token)
        if job.attempt == 1:
            raise REFUSED

    tokens: list[int] = []
    job = look.using(tenant="acme").enqueue()
    assert drain(app).succeeded == 1
    assert seen == [(job.id, "acme", 1, job.id, False), (job.id, "acme", 2, job.id, False)]
    assert tokens[0] < tokens[1]


def test_outside_of_a_task_no_job_runs() -> None:
    with pytest.raises(NotRunning, match="no job runs here"):
        current_job()


async def test_progress_can_be_seen_while_the_job_runs(app: Reprieve) -> None:
    seen: list[object] = []

    @app.task
    async def work() -> None:
        job = current_job()
        job.progress({"done": 3})
        while (said := await app.job(job.id).aprogress()) is None:
            pass
        seen.append(said)

    job = await work.aenqueue()
    assert await job.aprogress() is None
    await adrain(app)
    assert seen == [{"done": 3}]
    assert await job.aprogress() is None


def test_progress_must_be_data(app: Reprieve) -> None:
    @app.task(policy=Policy(max_attempts=1))
    def work() -> None:
        current_job().progress(object())

    work.enqueue()
    assert isinstance(drain(app).attempts[0].error, UnserialisableArgument)


@pytest.mark.parametrize("value", [float("nan"), {"rate": float("-inf")}])
def test_a_result_or_progress_that_json_cannot_hold_is_refused(app: Reprieve, value: object) -> None:
    @app.task(result_ttl="1h")
    def measure() -> object:
        return value

    @app.task(policy=Policy(max_attempts=1))
    def report() -> None:
        current_job().progress(value)

    job = measure.enqueue()
    report.enqueue()
    drained = drain(app)
    assert (job.fetch().death, drained.dead) == ("permanent", 2)
    cause = job.fetch().cause
    assert cause is not None
    assert cause.reason.startswith(f"there is a NaN or an infinity in the result of {measure.name}")
    (error,) = (attempt.error for attempt in drained.attempts if attempt.error is not None)
    assert isinstance(error, UnserialisableArgument)
    assert "a NaN or an infinity in the progress" in str(error)
