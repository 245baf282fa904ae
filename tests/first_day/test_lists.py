"""Lists that people can use, on every store: short ids, one status everywhere, 80 columns, and the whole story."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
import pytest

from reprieve.admin.resolve import short
from reprieve.core import change
from reprieve.core.change import Request
from reprieve.core.decide import Decision
from reprieve.core.job import Cause, Job
from reprieve.core.move import Dead, Park, Retry, Return
from reprieve.stores.open import open_store
from reprieve.stores.protocol import Claim, Heartbeat, LimitUpdate, Store
from reprieve.testing.conformance.stage import PROGRAM
from tests import terminal
from tests.first_day.user import User

DOWN = Cause(reason="connection refused by smtp.example.org", code="ECONNREFUSED", kind="transient")
UNKNOWN_USER = Cause(reason="550 5.1.1 no such user", code="550")


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Store]:
    store = open_store(url)
    try:
        await store.clock.tune()
        yield store
    finally:
        await store.close()


def new_job(store: Store, now: int, name: str, dependency: str = "") -> Job:
    return Job(
        id=store.new_id(now, "default"),
        task=f"shop.mail.send_{name}",
        tenant="acme",
        dependency=dependency,
        payload=b"[[42],{}]",
        created_at=now,
        due_at=now,
        max_attempts=5,
    )


async def claimed(store: Store, number: int, now: int, *changes: change.Change) -> list[Job]:
    claim = Claim(session="mail-3", number=number, now=now, queues=("default",), limit=9, changes=changes)
    return list((await store.claim(claim)).jobs)


def outage(url: str) -> dict[str, str]:
    """Store what an outage leaves behind: one job parked and due again, one never tried, one of another dependency."""

    async def happen() -> dict[str, str]:
        async with opened(url) as store:
            now = store.clock.now() - 60_000
            tried = new_job(store, now, "welcome", "smtp.example.org")
            await store.enqueue([tried], now)
            await store.heartbeat(Heartbeat(session="mail-3", now=now, lease=3_600.0, slots=9, is_new=True))
            (job,) = await claimed(store, 1, now)
            parked = change.settle(job, Park(gate="smtp.example.org", due_at=now + 1_000, cause=DOWN), now + 300)
            await store.update_limits(
                [LimitUpdate(subject="dependency", name="smtp.example.org", permits=0)], now, PROGRAM
            )
            await store.claim(Claim(session="mail-3", number=2, now=now + 300, changes=(parked,)))
            untried, other = new_job(store, now, "receipt", "smtp.example.org"), new_job(store, now, "text", "sms")
            await store.enqueue([untried, other], now)
            return {"tried": tried.id, "untried": untried.id, "other": other.id}

    return asyncio.run(happen())


def on_terminal(user: User, *words: str) -> str:
    return terminal.run(user.command(*words), environ=user.environ())


def test_a_job_whose_gate_is_held_is_parked_in_list_show_filter_and_json(user: User, url: str) -> None:
    jobs = outage(url)
    store = ("--store", url)
    listed = {job["id"]: job["status"] for job in user.reprieve("jobs", "list", "--json", *store).document["jobs"]}
    assert listed == {jobs["tried"]: "parked", jobs["untried"]: "parked", jobs["other"]: "ready"}
    parked = user.reprieve("jobs", "list", "--status", "parked", "--quiet", *store).stdout.split()
    assert sorted(parked) == sorted([jobs["tried"], jobs["untried"]])
    assert user.reprieve("jobs", "list", "--status", "ready", "--quiet", *store).stdout.split() == [jobs["other"]]
    for job in (jobs["tried"], jobs["untried"]):
        assert user.reprieve("jobs", "show", job, "--json", *store).document["status"] == "parked"
        shown = user.reprieve("jobs", "show", job, *store).stdout
        assert re.search(r"status +parked", shown)
        assert re.search(r"waits for +smtp\.example\.org", shown)
    rows = user.reprieve("jobs", "list", *store).stdout.splitlines()[1:]
    statuses = {row.split()[0]: row.split()[3] for row in rows}
    assert statuses == listed


def test_a_terminal_shows_short_ids_that_every_command_takes(user: User, url: str) -> None:
    jobs = outage(url)
    store = ("--store", url)
    lines = on_terminal(user, "jobs", "list", *store).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[-1] == "3 jobs"
    names = [line.split()[0] for line in lines[1:-1]]
    assert names == [short(job) for job in sorted(jobs.values(), reverse=True)]
    name = short(jobs["other"])
    assert user.reprieve("jobs", "show", name, "--json", *store).document["id"] == jobs["other"]
    cancelled = user.reprieve("jobs", "cancel", name, "--reason", "no longer wanted", "--json", *store).document
    assert cancelled == [{"jobId": jobs["other"], "message": "cancelled"}]
    retried = user.reprieve("jobs", "retry", name, "--reason", "wanted after all", "--json", *store).document
    assert retried[0]["jobId"] == jobs["other"]
    told = user.reprieve("jobs", "tail", "--job", name, "--since", "0", "--for", "2s", *store).stdout
    columns = [line.split()[3:7] for line in told.splitlines()]
    subject = ["shop.mail.send_text", "acme"]
    assert columns == [[*subject, "job", "cancelled"], [*subject, "retry", "requested"]]
    missing = user.reprieve("jobs", "show", "00000000ffff", *store)
    assert (missing.status, "(3 jobs searched)" in missing.stderr) == (3, True)
    # All of one moment begin alike.
    ambiguous = user.reprieve("jobs", "show", jobs["other"][:6], *store)
    assert (ambiguous.status, "is the id of several jobs" in ambiguous.stderr) == (2, True)


def test_a_bulk_command_acts_on_every_job_and_tail_tells_of_those_that_are_asked_for(user: User, url: str) -> None:
    jobs = outage(url)
    store = ("--store", url)
    names = [short(jobs[name]) for name in ("other", "untried", "tried")]
    first = user.reprieve("jobs", "cancel", names[0], "--reason", "no longer wanted", *store)
    assert first.status == 0, first.stderr
    done = user.reprieve("jobs", "cancel", *names, "--reason", "no longer wanted", "--json", *store)
    assert done.status == 4
    assert [(one["jobId"], one.get("message", one.get("error", {}).get("code"))) for one in done.document] == [
        (jobs["other"], "invalid_state"),
        (jobs["untried"], "cancelled"),
        (jobs["tried"], "cancelled"),
    ]
    words = ("--since", "10m", "--for", "2s", "--task", "send_welcome", "--tenant", "acme")
    told = user.reprieve("jobs", "tail", *words, "--status", "cancelled", "--status", "parked", *store)
    columns = [line.split()[2:6] for line in told.stdout.splitlines()]
    subject = [jobs["tried"], "shop.mail.send_welcome", "acme", "job"]
    assert columns == [subject, subject]
    assert "watching task shop.mail.send_welcome; tenant 'acme'; status cancelled, parked in " in told.stderr


def test_show_tells_the_whole_story_of_a_job(user: User, url: str) -> None:
    async def live() -> str:
        async with opened(url) as store:
            now = store.clock.now() - 3_600_000
            job = new_job(store, now, "welcome", "smtp.example.org")
            await store.enqueue([job], now)
            await store.heartbeat(Heartbeat(session="mail-3", now=now, lease=9_999.0, slots=9, is_new=True))
            moves: list[Decision] = [
                Retry(due_at=now + 60_000, cause=DOWN, delay=10, charged=False),
                Park(gate="smtp.example.org", due_at=now + 120_000, cause=DOWN),
                Return(crashed=True),
                Dead(death="permanent", cause=UNKNOWN_USER, charged=True),
            ]
            for number, move in enumerate(moves):
                at = now + number * 180_000
                (taken,) = await claimed(store, 2 * number + 1, at)
                settled = change.settle(taken, move, at + 2_500)
                await store.claim(Claim(session="mail-3", number=2 * number + 2, now=at + 2_500, changes=(settled,)))
            request = Request(by="ana", reason="the address is fixed", force=True)
            await store.apply([change.retry(settled.job, request, now + 900_000, 1_800.0)], now + 900_000)
            return job.id

    job = asyncio.run(live())
    shown = re.sub(r" +\n", "\n", user.reprieve("jobs", "show", short(job), "--store", url).stdout)
    assert job in shown
    assert re.search(r"attempts +attempt 4, 1 of 5 charged, 2 spared\n", shown)
    refused = "connection refused by smtp.example.org [ECONNREFUSED]"
    told = [re.sub(r"^(\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d +| +", " ", line).strip() for line in shown.splitlines()]
    assert told[told.index("enqueued") :] == [
        "enqueued",
        f"attempt 1 failed after 2.5s on mail-3, spared: {refused}",
        "→ next attempt after 57.5s",
        f"attempt 2 failed after 2.5s on mail-3, spared: {refused}",
        "→ parked until smtp.example.org answers again",
        "attempt 3 was lost: its worker died after 2.5s on mail-3",
        "→ ready again",
        "attempt 4 failed after 2.5s on mail-3, charged: 550 5.1.1 no such user",
        "→ died: permanent",
        "retried by ana: the address is fixed",
    ]
    story = user.reprieve("jobs", "show", job, "--json", "--store", url).document["story"]
    assert [step["what"] for step in story] == ["enqueued", "failed", "failed", "lost", "failed", "retried"]


def test_a_pipe_gets_every_job_and_a_terminal_the_first_of_them(user: User, url: str) -> None:
    async def fill() -> set[str]:
        async with opened(url) as store:
            now = store.clock.now()
            jobs = [new_job(store, now, "welcome") for _ in range(230)]
            await store.enqueue(jobs, now)
            return {job.id for job in jobs}

    jobs = asyncio.run(fill())
    piped = user.reprieve("jobs", "list", "--store", url)
    assert {line.split()[0] for line in piped.stdout.splitlines()[1:]} == jobs
    assert piped.stderr == "230 jobs\n"
    assert len(user.reprieve("jobs", "list", "--json", "--store", url).document["jobs"]) == 230
    lines = on_terminal(user, "jobs", "list", "--store", url).splitlines()
    assert len(lines) == 52
    assert re.match(r"50 of 230 jobs; continue with --cursor \S+$", lines[-1])


@pytest.mark.parametrize("url", ["postgres"], indirect=True)
def test_looking_at_a_database_makes_no_schema_in_it(user: User, url: str) -> None:
    done = user.reprieve("jobs", "list", "--store", url)
    assert done.status == 3
    assert "has no store yet" in done.stderr
    with psycopg.connect(url.partition("?")[0]) as connection:
        schemas = connection.execute("select 1 from pg_namespace where nspname = %s", [url.partition("schema=")[2]])
        assert schemas.fetchall() == []
