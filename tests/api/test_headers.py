"""Headers of a job, from the caller to the task: options, defaults, what a job that enqueues another passes on."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from reprieve import Reprieve, Task, current_job
from reprieve.core.headers import NO_HEADERS, Headers
from reprieve.errors import InvalidDuration, InvalidTask, ValidationError
from reprieve.testing import assert_enqueued, drain, enqueued

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
OTHER_TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
ID = "0192f0c8-7a10-7000-8000-2f6e11c40ae1"


@pytest.fixture
def send(app: Reprieve) -> Task[[int], None]:
    @app.task(name="send")
    def send(user: int) -> None:
        """Send something."""

    return send


def headers_of(task: Task[[int], None]) -> Headers:
    return task.enqueue(1).fetch().headers or NO_HEADERS


def test_a_job_without_headers_has_none(send: Task[[int], None]) -> None:
    assert send.enqueue(1).fetch().headers is None


def test_headers_of_the_caller_are_stored_with_the_job(send: Task[[int], None]) -> None:
    said = send.using(
        tags=["nightly", "eu"],
        headers={"origin": "import"},
        user="ana",
        linked=ID,
        traceparent=TRACE,
        tracestate="vendor=1",
    )
    assert headers_of(said) == Headers(
        tags=("nightly", "eu"),
        own={"origin": "import"},
        user="ana",
        linked=ID,
        traceparent=TRACE,
        tracestate="vendor=1",
    )


def test_an_sla_counts_from_the_enqueue(send: Task[[int], None]) -> None:
    job = send.using(sla="10m", delay="1h").enqueue(1).fetch()
    assert job.headers == Headers(sla_at=job.created_at + 600_000)


def test_a_task_has_tags_and_an_sla_that_its_jobs_may_replace(app: Reprieve) -> None:
    @app.task(name="ship", tags=["shop"], sla="1m")
    def ship(order: int) -> None:
        """Ship an order."""

    job = ship.enqueue(1).fetch()
    assert job.headers == Headers(tags=("shop",), sla_at=job.created_at + 60_000)
    job = ship.using(tags=["other"], sla="2m").enqueue(2).fetch()
    assert job.headers == Headers(tags=("other",), sla_at=job.created_at + 120_000)
    job = ship.using(tags=[]).enqueue(3).fetch()
    assert job.headers == Headers(sla_at=job.created_at + 60_000)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_job_that_is_enqueued_inside_of_another_has_it_as_its_parent(app: Reprieve, *, is_async: bool) -> None:
    @app.task(name="inner")
    def inner() -> None: ...

    if is_async:

        @app.task(name="outer")
        async def outer() -> None:
            await asyncio.gather(inner.aenqueue(), app.aenqueue_many([inner.call()]))
    else:

        @app.task(name="outer")
        def outer() -> None:
            inner.enqueue()
            app.enqueue_many([inner.call()])

    above = outer.using(tags=["t"], user="ana", headers={"a": "b"}, traceparent=TRACE, tracestate="v=1", sla="1h")
    parent = above.enqueue()
    drain(app)
    for one in assert_enqueued(app, inner, times=2):
        # Tags, user, SLA and headers of its own say something about one job: they are not inherited.
        assert one.job.headers == Headers(parent=parent.id, traceparent=TRACE, tracestate="v=1")


def test_a_trace_that_is_passed_goes_before_that_of_the_running_job(app: Reprieve) -> None:
    @app.task(name="inner")
    def inner() -> None: ...

    @app.task(name="outer")
    def outer() -> None:
        inner.using(traceparent=OTHER_TRACE).enqueue()

    parent = outer.using(traceparent=TRACE, tracestate="v=1").enqueue()
    drain(app)
    (one,) = enqueued(app, inner)
    assert one.job.headers == Headers(parent=parent.id, traceparent=OTHER_TRACE)


def test_a_task_reads_the_headers_of_its_job(app: Reprieve) -> None:
    seen: list[tuple[Any, ...]] = []

    @app.task(name="look")
    def look() -> None:
        job = current_job()
        seen.append((job.tags, job.user, dict(job.headers), job.traceparent, job.tracestate))
        with pytest.raises(TypeError):
            job.headers["new"] = "x"  # type: ignore[index]  # a mapping that cannot be changed

    look.enqueue()
    look.using(tags=["t"], user="ana", headers={"a": "b"}, traceparent=TRACE, tracestate="v=1").enqueue()
    drain(app)
    assert sorted(seen) == [((), "", {}, "", ""), (("t",), "ana", {"a": "b"}, TRACE, "v=1")]


def test_headers_stay_through_retries_and_the_end(app: Reprieve) -> None:
    @app.task(name="fail_once")
    def fail_once() -> None:
        if current_job().attempt == 1:
            message = "refused"
            raise ConnectionError(message)

    job = fail_once.using(tags=["t"], headers={"a": "b"}).enqueue()
    drain(app)
    stored = job.fetch()
    assert (stored.state, stored.attempt) == ("succeeded", 2)
    assert stored.headers == Headers(tags=("t",), own={"a": "b"})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tags": ["a\nb"]}, r"each of option tags of a job must be 1–64 printable characters, got 'a\\nb'"),
        ({"tags": "nightly"}, "option tags of a job must be a list of texts"),
        ({"headers": {"X": "1"}}, "names in option headers of a job must be 1–64 of the characters a–z"),
        ({"headers": {"a": "x" * 513}}, r"option headers of a job\['a'\] must be 0–512 printable characters"),
        ({"headers": {"user": "ana"}}, "must not have the name 'user': Reprieve uses it; write using"),
        ({"headers": {f"h{n}": "x" * 250 for n in range(16)}}, "at most 3,072 bytes together"),
        ({"user": "x" * 257}, "option user of a job must be 0–256 printable characters"),
        ({"linked": "42"}, "option linked of a job must be the id of a job"),
        ({"traceparent": "00-abc"}, "traceparent must have the W3C format"),
        ({"traceparent": ""}, "traceparent must have the W3C format"),
        ({"tracestate": "v=1"}, "option tracestate of a job needs the option traceparent"),
        ({"traceparent": TRACE, "tracestate": "\n"}, "tracestate must be at most 512 printable ASCII characters"),
    ],
)
def test_a_header_over_its_bound_is_refused_where_it_is_said(
    send: Task[[int], None], options: Mapping[str, Any], said: str
) -> None:
    with pytest.raises(ValidationError, match=said):
        send.using(**options)


def test_an_sla_that_is_no_duration_is_refused(app: Reprieve, send: Task[[int], None]) -> None:
    with pytest.raises(InvalidDuration, match="sla must be a duration"):
        send.using(sla="soon")
    with pytest.raises(InvalidDuration, match="sla of task"):
        app.task(sla="soon")(lambda: None)


def test_a_task_with_bad_tags_is_refused(app: Reprieve) -> None:
    with pytest.raises(ValidationError, match="each of tags of task"):
        app.task(tags=["a\tb"])(lambda: None)


@pytest.mark.parametrize("option", ["headers", "user", "linked", "traceparent"])
def test_what_belongs_to_a_job_is_no_option_of_a_task(app: Reprieve, option: str) -> None:
    options: dict[str, Any] = {option: "x"}
    with pytest.raises(InvalidTask, match=rf"it belongs to a job: .using\({option}=…\)"):
        app.task(**options)(lambda: None)


def test_a_test_can_ask_for_the_headers_of_a_call(app: Reprieve, send: Task[[int], None]) -> None:
    send.using(tags=["a"], user="ana", headers={"origin": "x"}, sla="5m").enqueue(1)
    assert_enqueued(app, send.using(tags=["a"]).call(1))
    assert_enqueued(app, send.using(user="ana", headers={"origin": "x"}, sla="5m").call(1))
    with pytest.raises(AssertionError, match=r"tags=\('a',\) user='ana' headers={'origin': 'x'}"):
        assert_enqueued(app, send.using(tags=["b"]).call(1))
