"""`reprieve jobs`, without the app: what it can know of a job must stand in the store."""

import asyncio
import json
import re
from typing import Any

from msgspec.structs import replace

from reprieve import Fail, Job, Policy, Reprieve, clock
from reprieve.cli.summary import facts_of
from reprieve.core.headers import Headers
from reprieve.core.job import Suspicion
from reprieve.stores.protocol import Claim, Heartbeat, Retention
from reprieve.testing import FakeClock, adrain, drain
from tests.cli.shell import answer, complaint, reprieve

STORE = ("--store", "sqlite:///jobs.db")
HOUR = 3_600_000


def run_for_an_hour(timeout: str | None) -> str:
    """Return a job that a worker has been running for an hour."""
    then = clock.now() - HOUR

    async def lease() -> str:
        async with Reprieve(STORE[1], clock=FakeClock(then)) as app:

            @app.task(name="render", timeout=timeout)
            def render() -> None: ...

            await render.aenqueue()
            await app.store.heartbeat(Heartbeat(session="w", now=then, lease=2 * HOUR, slots=1, is_new=True))
            claim = Claim(session="w", number=1, now=then, queues=("default",), limit=1)
            (job,) = (await app.store.claim(claim)).jobs
            return job.id

    return asyncio.run(lease())


def test_a_job_that_may_take_long_is_not_stuck() -> None:
    job = run_for_an_hour(timeout="2h")
    assert answer("jobs", "show", job, *STORE)["status"] == "running"
    assert "is running (leased to w)" in complaint("jobs", "retry", job, "--reason", "it hangs", *STORE, status=4)


def test_a_job_that_takes_longer_than_expected_is_stuck() -> None:
    job = run_for_an_hour(timeout=None)
    assert answer("jobs", "show", job, *STORE)["status"] == "stuck"
    (retried,) = answer("jobs", "retry", job, "--reason", "it hangs", *STORE)
    assert retried["jobId"] == job
    assert answer("jobs", "show", job, *STORE)["status"] == "ready"


TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def facts(job: str, *words: str) -> dict[str, str]:
    """Return what `jobs show` prints of a job, by its names."""
    shown = reprieve("jobs", "show", job, *STORE, *words).stdout.split("\n\n")
    lines = [line[2:].split("  ", 1) for line in shown[0].splitlines()]
    return {name: value.strip() for name, value in lines}


def misread(*, is_kept: bool = True, **options: Any) -> str:  # noqa: ANN401 - the options of a job
    """Return a job that died in a library."""
    with Reprieve(STORE[1], clock=FakeClock(clock.now())) as app:

        @app.task(name="parse", policy=Policy(max_attempts=1), dependency="mail")
        def parse() -> None:
            json.loads("{")

        job = parse.using(**options).enqueue()
        drain(app)
        if not is_kept:
            app.portal.run(app.store.prune(Retention(now=clock.now(), failures=0)))
        return job.id


def test_a_job_is_shown_with_its_headers() -> None:
    job = misread(
        tags=["nightly", "eu"],
        headers={"origin": "import", "shard": "7"},
        user="ana",
        sla="10m",
        traceparent=TRACE,
        tracestate="vendor=1",
        linked="0199c82c-c000-7abc-8def-2f6e11c40ae3",
    )
    shown = facts(job)
    assert (shown["tags"], shown["user"], shown["headers"]) == ("nightly, eu", "ana", "origin=import, shard=7")
    assert (shown["trace"], shown["linked to"]) == (f"{TRACE} vendor=1", "0199c82c-c000-7abc-8def-2f6e11c40ae3")
    assert shown["SLA"].endswith("(met)")
    headers = answer("jobs", "show", job, *STORE)["headers"]
    assert (headers["tags"], headers["own"]) == (["nightly", "eu"], {"origin": "import", "shard": "7"})
    assert (headers["parent"], headers["credits"]) == ("", 0)


def test_every_header_that_a_store_may_hold_is_shown() -> None:
    ids = [f"0199c82c-c000-7abc-8def-2f6e11c40ae{number}" for number in (2, 3)]
    headers = Headers(parent=ids[0], operation="import-7", credits=3, region="eu-west-1", sla_at=clock.now() - 60_000)

    async def enqueue() -> str:
        async with Reprieve(STORE[1]) as app:

            @app.task(name="send")
            def send() -> None: ...

            job = replace(app.producer.job_of(send.call()), headers=headers)
            await app.store.enqueue([job], clock.now())
            return job.id

    shown = facts(asyncio.run(enqueue()))
    assert (shown["parent"], shown["operation"], shown["credits"]) == (ids[0], "import-7", "3")
    assert shown["region"] == "eu-west-1"
    assert shown["SLA"].endswith("ago)")


def test_an_sla_that_was_missed_says_by_how_much() -> None:
    async def fail_late() -> str:
        async with Reprieve(STORE[1], clock=FakeClock(clock.now())) as app:

            @app.task(name="late")
            def late() -> None:
                raise Fail("no")  # noqa: EM101 - a test

            job = await late.using(sla="1m", delay="3m").aenqueue()
            await adrain(app)
            return job.id

    assert facts(asyncio.run(fail_late()))["SLA"].endswith("(missed by 2m)")


def test_a_job_is_shown_with_the_cause_of_its_last_failure() -> None:
    job = misread()
    shown = facts(job)
    assert shown["error type"] == "json.decoder.JSONDecodeError"
    assert shown["error kind"] == "transient, of the job, by rule python:JSONDecodeError"
    assert shown["attempt took"].endswith("s")
    cause = answer("jobs", "show", job, *STORE)["cause"]
    assert (cause["scope"], cause["rule"], cause["kind"]) == ("job", "python:JSONDecodeError", "transient")
    assert cause["fingerprint"] == shown["fingerprint"]
    assert cause["duration"] > 0
    assert cause["traceback"].startswith("Traceback (most recent call last):")


def test_the_last_traceback_is_printed_below_the_history() -> None:
    output = reprieve("jobs", "show", misread(), *STORE).stdout
    history, _, traceback = output.rpartition("\n\n")
    assert "enqueued" in history
    assert traceback.startswith("Traceback (most recent call last):")
    assert 'json.loads("{")' in traceback
    assert "raw_decode" not in traceback


def test_the_full_traceback_is_that_of_the_group() -> None:
    job = misread()
    output = reprieve("jobs", "show", job, "--traceback", *STORE).stdout
    assert "  failures    Expecting property name enclosed in double quotes: line <n> column <n> (char <n>)" in output
    assert "in JSONDecoder.raw_decode" in output
    group = answer("jobs", "show", job, *STORE)["failureGroup"]
    assert group["template"].endswith("line <n> column <n> (char <n>)")
    assert "in JSONDecoder.raw_decode" in group["traceback"]


def test_a_full_traceback_that_is_gone_is_said_to_be() -> None:
    job = misread(is_kept=False)
    result = reprieve("jobs", "show", job, "--traceback", *STORE)
    assert "there is no full traceback" in result.stderr
    assert 'json.loads("{")' in result.stdout
    assert answer("jobs", "show", job, *STORE)["failureGroup"] is None


def test_a_deadline_is_shown_with_its_span_and_where_that_begins() -> None:
    now = clock.now()
    job = Job(id="j", task="send", created_at=now, due_at=now, deadline_at=now + 600_000)
    assert str(dict(facts_of(job, "ready", now, None))["deadline"]).endswith("(in 10m), 10m")
    retried = replace(job, created_at=now - HOUR, deadline_from_at=now)
    assert re.search(r"\(in 10m\), 10m from [\d:]+$", str(dict(facts_of(retried, "ready", now, None))["deadline"]))


def test_a_suspect_is_shown_with_what_was_lost_with_it() -> None:
    job = Job(id="j", task="send", created_at=0, due_at=0, crashes=4)
    assert dict(facts_of(job, "ready", 0, None))["crashes"] == "4"
    suspect = replace(job, suspicion=Suspicion(sessions=1, processes=2))
    shown = dict(facts_of(suspect, "ready", 0, None))["crashes"]
    assert shown == "4; lost since its last attempt that ended: 1 worker, 2 processes of its own; it runs alone"
