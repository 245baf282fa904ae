"""Lists that people can use: whole or short ids, within the terminal's width, and everything in a pipe."""

import asyncio
import json
import re

import pytest

from reprieve import clock
from reprieve.admin.resolve import digits_for, short
from reprieve.core.change import settle
from reprieve.core.ids import make_id
from reprieve.core.job import Cause, Job
from reprieve.core.move import Dead, Park, Retry
from reprieve.stores.open import open_store
from reprieve.stores.protocol import Claim, Heartbeat, LimitUpdate, Store
from reprieve.testing.conformance.stage import PROGRAM
from tests.cli.shell import answer, complaint, reprieve
from tests.terminal import on_terminal

URL = "sqlite:///jobs.db"
STORE = ("--store", URL)
LONG = "the mail provider has closed the connection before the transaction began, as it does when it is overloaded"


def fill(*jobs: Job) -> None:
    """Store jobs."""

    async def work() -> None:
        store = open_store(URL)
        await store.enqueue(jobs, clock.now())
        await store.close()

    asyncio.run(work())


def new(chance: int = 1, ago: int = 0, **facts: object) -> Job:
    now = clock.now() - ago
    given = {"task": "shop.mail.send_welcome", "created_at": now, "due_at": now} | facts
    return Job(id=make_id(now, chance), **given)  # type: ignore[arg-type]  # as a job takes them


async def work_through(store: Store) -> dict[str, str]:
    """Store jobs of a busy shop: one dead, one retrying, one parked; return their ids by their tenants."""
    now = clock.now()
    names = {"dead": "ses", "retrying": "ses", "parked": "smtp.example.org", "ready": "smtp.example.org"}
    jobs = [
        Job(
            id=store.new_id(now, "default"),
            task=f"warehouse.notifications.orders.tell_customers_that_their_order_is_{name}",
            tenant=f"tenant-with-a-long-name-{name}",
            dependency=dependency,
            created_at=now,
            due_at=now,
            max_attempts=5,
        )
        for name, dependency in names.items()
    ]
    await store.enqueue(jobs[:3], now)
    await store.heartbeat(Heartbeat(session="w", now=now, lease=60.0, slots=9, is_new=True))
    taken = {
        job.id: job
        for job in (await store.claim(Claim(session="w", number=1, now=now, queues=("default",), limit=9))).jobs
    }
    cause = Cause(reason=LONG, code="421", kind="transient")
    moves: list[Retry | Park | Dead] = [
        Dead(death="exhausted", cause=cause, charged=True),
        Retry(due_at=now + 3_600_000, cause=cause, delay=3_600),
        Park(gate="smtp.example.org", due_at=now + 1, cause=cause),
    ]
    changes = tuple(settle(taken[job.id], move, now) for job, move in zip(jobs, moves, strict=False))
    await store.claim(Claim(session="w", number=2, now=now, changes=changes))
    await store.enqueue(jobs[3:], now)
    await store.update_limits([LimitUpdate(subject="dependency", name="smtp.example.org", permits=0)], now, PROGRAM)
    return dict(zip(names, (job.id for job in jobs), strict=True))


@pytest.fixture
def shop() -> dict[str, str]:
    async def work() -> dict[str, str]:
        store = open_store(URL)
        try:
            return await work_through(store)
        finally:
            await store.close()

    return asyncio.run(work())


# tables


def test_a_terminal_of_80_columns_shows_whole_statuses_and_short_ids(shop: dict[str, str]) -> None:
    lines = on_terminal("jobs", "list", *STORE).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == ["job", "task", "tenant", "status", "charged", "spared", "when", "why"]
    rows = {line.split()[0]: line for line in lines[1:-1]}
    assert set(rows) == {short(job) for job in shop.values()}
    assert lines[-1] == "4 jobs"
    assert re.search(r" dead +1/5 ", rows[short(shop["dead"])])
    assert re.search(r" parked +0/5 +1 ", rows[short(shop["parked"])])
    assert re.search(r" parked +0/5 ", rows[short(shop["ready"])])
    assert re.search(r" retrying +1/5 +in 59m ", rows[short(shop["retrying"])])
    assert "is_dead " in rows[short(shop["dead"])]


def test_a_narrow_terminal_cuts_no_id_and_no_status(shop: dict[str, str]) -> None:
    text = on_terminal("jobs", "list", *STORE, columns=50)
    assert all(short(job) in text for job in shop.values())
    assert "retrying" in text
    assert "…is_dead " in text


def test_columns_that_say_nothing_take_no_room() -> None:
    fill(new())
    header = on_terminal("jobs", "list", *STORE).splitlines()[0]
    assert header.split() == ["job", "task", "status", "charged", "when", "why"]


def test_wide_and_unprintable_characters_keep_the_columns_apart() -> None:
    fill(new(1, tenant="東京" * 20), new(2, tenant="acme"))
    lines = on_terminal("jobs", "list", *STORE).splitlines()
    assert "…" in lines[1] or "…" in lines[2]
    statuses = {line.partition("ready")[0].strip().split()[-1] for line in lines[1:3]}
    assert len(statuses) == 2


def test_a_pipe_gets_whole_ids_and_texts_one_job_a_line(shop: dict[str, str]) -> None:
    result = reprieve("jobs", "list", *STORE)
    lines = result.stdout.splitlines()
    assert len(lines) == 5
    assert {line.split()[0] for line in lines[1:]} == set(shop.values())
    assert sum(LONG in line for line in lines) == 3
    assert result.stderr == "4 jobs\n"


def test_a_pipe_gets_every_job_and_a_terminal_says_how_many_there_are() -> None:
    fill(*(new(number) for number in range(60)))
    assert len(reprieve("jobs", "list", *STORE).stdout.splitlines()) == 61
    assert len(answer("jobs", "list", *STORE)["jobs"]) == 60
    lines = on_terminal("jobs", "list", *STORE).splitlines()
    assert len(lines) == 52
    cursor = re.fullmatch(r"50 of 60 jobs; continue with --cursor (\S+)", lines[-1])
    assert cursor is not None
    rest = on_terminal("jobs", "list", "--cursor", cursor[1], *STORE).splitlines()
    assert {line.split()[0] for line in rest[1:-1]}.isdisjoint(line.split()[0] for line in lines[1:-1])
    assert len(rest) == 12


def test_the_newest_jobs_come_first() -> None:
    ids = []
    for number in range(3):
        job = new(number)
        fill(job)
        ids.append(job.id)
    assert reprieve("jobs", "list", "-q", *STORE).stdout.split() == sorted(ids, reverse=True)


def test_quiet_prints_ids_for_other_commands(shop: dict[str, str]) -> None:
    assert reprieve("jobs", "list", "--status", "dead", "--quiet", *STORE).stdout == f"{shop['dead']}\n"
    limited = reprieve("jobs", "list", "--limit", "2", "-q", *STORE)
    assert len(limited.stdout.split()) == 2
    assert limited.stderr.startswith("2 of 4 jobs; continue with --cursor ")
    assert "exclude each other" in reprieve("jobs", "list", "-q", "--json", *STORE, status=2).stderr


def test_json_says_where_to_go_on_and_how_many_there_are(shop: dict[str, str]) -> None:
    first = answer("jobs", "list", "--limit", "3", *STORE)
    assert (len(first["jobs"]), first["total"]) == (3, 4)
    rest = answer("jobs", "list", "--cursor", first["cursor"], *STORE)
    assert {job["id"] for job in first["jobs"] + rest["jobs"]} == set(shop.values())
    assert answer("jobs", "list", "--tenant", "unknown", *STORE) == {"jobs": [], "cursor": "", "total": 0}


def test_colours_are_for_terminals_that_want_them(shop: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b[31mdead" in on_terminal("jobs", "list", *STORE, colours=True)
    assert "\x1b[" not in reprieve("jobs", "list", *STORE).stdout
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[31m" not in on_terminal("jobs", "list", *STORE, colours=True)
    assert shop


# one status everywhere


@pytest.mark.parametrize("name", ["parked", "ready"])
def test_a_job_whose_gate_is_held_is_parked_everywhere(shop: dict[str, str], name: str) -> None:
    job = shop[name]
    assert answer("jobs", "show", job, *STORE)["status"] == "parked"
    assert re.search(r"status +parked", reprieve("jobs", "show", job, *STORE).stdout)
    listed = {one["id"]: one["status"] for one in answer("jobs", "list", *STORE)["jobs"]}
    assert listed[job] == "parked"
    assert job in reprieve("jobs", "list", "--status", "parked", "-q", *STORE).stdout
    assert job not in reprieve("jobs", "list", "--status", "ready", "-q", *STORE).stdout


# short ids


def test_any_unique_beginning_or_end_of_an_id_names_the_job() -> None:
    first, second = new(0x1111_2222_3333_4444), new(0x1111_2222_3333_5444)
    fill(first, second)
    for part in (short(first.id, 4), short(first.id, 8), first.id[-12:], first.id.upper(), first.id.replace("-", "")):
        if part != short(second.id, len(part)):
            assert answer("jobs", "show", part, *STORE)["id"] == first.id
    assert answer("jobs", "cancel", "5444", "3334444", "--reason", "x", *STORE) == [
        {"jobId": second.id, "message": "cancelled"},
        {"jobId": first.id, "message": "cancelled"},
    ]
    assert first.id in reprieve("jobs", "tail", "--job", "34444", "--since", "0", "--for", "0.1", *STORE).stdout


def test_a_part_that_several_jobs_have_is_answered_with_them() -> None:
    jobs = [new(number << 32 | 0xABCD, number, task=f"t{number}") for number in range(7)]
    fill(*jobs)
    line = complaint("jobs", "show", "abcd", *STORE, status=2)
    assert "abcd is the id of several jobs" in line
    assert len(re.findall(r"[0-9a-f-]{36} \(t\d, ready\)", line)) == 5
    assert line.endswith(", and more; give more of it")
    answered = json.loads(reprieve("jobs", "show", "abcd", "--json", *STORE, status=2).stderr)
    assert answered["error"]["code"] == "ambiguous_id"


def test_a_part_that_no_job_has_is_not_found() -> None:
    fill(new(1), new(2))
    assert "(2 jobs searched)" in complaint("jobs", "show", "ffffffff", *STORE, status=3)
    foreign = "0192f0c8-7a10-4000-8000-2f6e11c40ae1"
    assert f"there is no job {foreign}" in complaint("jobs", "show", foreign, *STORE, status=3)


@pytest.mark.parametrize("text", ["abc", "hello-world", ""])
def test_what_is_no_part_of_an_id_is_refused(text: str) -> None:
    fill(new(1))
    assert "is not a job id; give a whole one, or 4 or more of the hex digits" in complaint(
        "jobs", "show", text, *STORE, status=2
    )


def test_ids_that_end_alike_are_shown_with_more_digits() -> None:
    alike = [make_id(1_760_000_000_000, 0x1_ABCD_EF01), make_id(1_760_000_000_000, 0x2_ABCD_EF01)]
    assert digits_for(alike) == 9
    assert digits_for(alike[:1]) == 8
    assert [short(job, 9) for job in alike] == ["1abcdef01", "2abcdef01"]
