"""`reprieve jobs tail`: what happened to which job, of which task and tenant, in the words of the log."""

import json
from typing import Any

import pytest

from reprieve import Policy, Reprieve, clock
from reprieve.cli.tail import MAX_SUCCESSES, NAMES, Successes, Watch, name_of, status_after
from reprieve.core.events import Event
from reprieve.core.headers import Headers
from reprieve.core.job import Cause
from reprieve.core.move import Dead, Enqueue, ManualRetry, Move, Park, Retry, Return, Snooze, Start, Succeed
from reprieve.stores.open import open_store
from reprieve.stores.protocol import Filter, Order, Page
from reprieve.testing import FakeClock, FaultyStore, drain
from reprieve.testing.conformance.stage import START, Worker, enqueue, new_jobs, succeed
from tests.cli.shell import complaint, reprieve

STORE = ("--store", "sqlite:///jobs.db")
NOW = 1_760_000_000_000
CAUSE = Cause(reason="451 later", code="451")


@pytest.fixture
def happened() -> dict[str, str]:
    """Let one job fail, succeed at its second attempt half an hour ago, and one of another task die an hour ago."""
    fake = FakeClock(clock.now() - 3_600_000)
    with Reprieve(STORE[1], clock=fake) as app:
        tries: list[int] = []

        @app.task(name="shop.bills.send", policy=Policy(max_attempts=1))
        def send_bill() -> None:
            raise ValueError

        @app.task(name="shop.mail.send", policy=Policy(max_attempts=5))
        def send_mail() -> None:
            tries.append(1)
            if len(tries) == 1:
                raise TimeoutError

        bill = send_bill.using(tenant="acme").enqueue().id
        drain(app)
        fake.advance("30m")
        mail = send_mail.enqueue().id
        drain(app)
        return {"bill": bill, "mail": mail}


def told(*words: str) -> list[dict[str, Any]]:
    done = reprieve("jobs", "tail", "--for", "0.2", "--json", *words, *STORE)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_since_a_duration_shows_what_happened_within_it_successes_too(happened: dict[str, str]) -> None:
    assert [(one["jobId"], one["event"]) for one in told("--since", "45m")] == [
        (happened["mail"], "retry scheduled"),
        (happened["mail"], "job succeeded"),
    ]
    assert [one["event"] for one in told("--since", "2h")] == ["job died", "retry scheduled", "job succeeded"]


def test_since_a_place_shows_the_events_after_it(happened: dict[str, str]) -> None:
    events = told("--since", "0")
    assert [(one["jobId"], one["event"]) for one in events] == [
        (happened["bill"], "job died"),
        (happened["mail"], "retry scheduled"),
    ]
    assert [one["event"] for one in told("--since", str(events[0]["seq"]))] == ["retry scheduled"]


def test_neither_a_position_nor_a_duration_is_refused() -> None:
    assert "must be a position in the stream (1842) or a duration (10m)" in complaint(
        "jobs", "tail", "--since", "noon", *STORE, status=2
    )
    assert "10q" in complaint("jobs", "tail", "--since", "10q", *STORE, status=2)


@pytest.mark.parametrize(
    ("words", "events"),
    [
        (("--task", "bills.send"), ["job died"]),
        (("--task", "mail.send"), ["retry scheduled", "job succeeded"]),
        (("--tenant", "acme"), ["job died"]),
        (("--tenant", ""), ["retry scheduled", "job succeeded"]),
        (("--status", "dead"), ["job died"]),
        (("--status", "retrying", "--status", "done"), ["retry scheduled", "job succeeded"]),
        (("--status", "dead", "--task", "mail.send"), []),
    ],
)
@pytest.mark.usefixtures("happened")
def test_filters_leave_what_they_name(words: tuple[str, ...], events: list[str]) -> None:
    assert [one["event"] for one in told("--since", "2h", *words)] == events


@pytest.mark.usefixtures("happened")
def test_a_mistyped_status_is_answered_with_the_nearest() -> None:
    assert complaint("jobs", "tail", "--status", "ded", *STORE, status=2).endswith("did you mean dead?")


def test_each_line_has_task_and_tenant_and_the_first_names_what_is_watched(happened: dict[str, str]) -> None:
    done = reprieve("jobs", "tail", "--since", "2h", "--for", "0.2", *STORE)
    lines = [line.split("  ") for line in done.stdout.splitlines()]
    assert [line[1:4] for line in lines] == [
        [happened["bill"], "shop.bills.send", "acme"],
        [happened["mail"], "shop.mail.send", "-"],
        [happened["mail"], "shop.mail.send", "-"],
    ]
    assert done.stderr == "watching all jobs in sqlite:///jobs.db\n"
    narrow = reprieve(
        "jobs", "tail", "--task", "mail.send", "--tenant", "acme", "--status", "dead", "--for", "0", *STORE
    )
    assert narrow.stderr == "watching task shop.mail.send; tenant 'acme'; status dead in sqlite:///jobs.db\n"


@pytest.mark.parametrize(
    ("move", "name", "status"),
    [
        (Enqueue(), "job enqueued", "ready"),
        (Start(session="w"), "job started", "running"),
        (Succeed(), "job succeeded", "succeeded"),
        (Park(gate="smtp", due_at=NOW, cause=CAUSE), "job parked", "parked"),
        (Retry(due_at=NOW + 1, cause=CAUSE, delay=1.0), "retry scheduled", "retrying"),
        (Dead(death="permanent", cause=CAUSE), "job died", "dead"),
        (Snooze(due_at=NOW + 1), "job snoozed", "scheduled"),
        (Return(), "job returned", "ready"),
        (Return(crashed=True), "job recovered", "ready"),
        (ManualRetry(by="ana", reason="x", due_at=NOW), "retry requested", "ready"),
        (ManualRetry(by="ana", reason="x", due_at=NOW + 1), "retry requested", "retrying"),
    ],
)
def test_every_move_has_the_name_of_the_log_and_the_status_that_follows(
    move: Move | Enqueue, name: str, status: str
) -> None:
    event = Event(job_id="j", at=NOW, attempt=1, version=2, move=move)
    assert (name_of(event), status_after(event)) == (name, status)


def test_every_kind_of_move_has_a_name() -> None:
    assert set(NAMES) == {*Move.__args__, Enqueue}


async def test_success_that_is_an_event_is_not_read_from_its_job_as_well() -> None:
    store = open_store("sqlite://:memory:")
    (told,) = new_jobs(store, 1, headers=Headers(tells_all=True))
    (other,) = new_jobs(store, 1)
    await enqueue(store, told, other)
    worker = await Worker.open(store)
    await worker.settle(*map(succeed, await worker.exactly(2)))
    found = await Successes(store, START, Watch()).new()
    assert [event.job_id for _, event in found] == [other.id]
    await store.close()


async def test_successes_that_come_in_crowds_are_each_read_once() -> None:
    class Counted(FaultyStore):
        looks = 0

        async def find(
            self, wanted: Filter, now: int, cursor: str = "", limit: int = 100, order: Order = "oldest"
        ) -> Page:
            self.looks += 1
            return await super().find(wanted, now, cursor, limit, order)

    store = Counted(open_store("sqlite://:memory:"))
    count = 2 * MAX_SUCCESSES + 500
    await enqueue(store, *new_jobs(store, count))
    worker = await Worker.open(store)
    for _ in range(count // 500):
        await worker.settle(*map(succeed, await worker.exactly(500)))
    successes = Successes(store, START, Watch())
    found = await successes.new()
    while successes.has_more:
        found += await successes.new()
    assert len({event.job_id for _, event in found}) == len(found) == count
    # A page holds a hundred jobs, and each is read once.
    assert store.looks <= count // 100 + 3
    assert await successes.new() == []
    await store.close()
