"""The story of a job: each step as a sentence, with everything that is known of it."""

import asyncio
import re
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from reprieve import Reprieve, clock
from reprieve.cli.summary import attempts_of
from reprieve.core import change
from reprieve.core.events import Event
from reprieve.core.job import CancelRequest, Cause, Job
from reprieve.core.move import Cancel, Dead, ManualRetry, Move, Park, Retry, Return, Revive, Snooze, Start, Succeed
from reprieve.stores.protocol import Claim, Heartbeat
from reprieve.views.moments import clock_time, relative, roughly
from reprieve.views.story import Step, story
from tests.cli.shell import answer, reprieve

NOW = 1_760_000_000_000
CAUSE = Cause(reason="451 try again later", code="451", kind="transient")
CODELESS = Cause(reason="connection refused", code="ECONNREFUSED", kind="transient")


def ended_by(move: Move, *, by: str = "mail-3") -> Step:
    """Return the step of an attempt that took 2.5 seconds and ended so."""
    event = Event(job_id="j", at=NOW + 2_500, attempt=2, version=4, move=move, session=by, started_at=NOW)
    return story(Job(id="j", task="send", created_at=NOW, due_at=NOW, version=4), [event])[-1]


@pytest.mark.parametrize(
    ("move", "text", "then"),
    [
        (
            Retry(due_at=NOW + 12_500, cause=CAUSE, delay=10),
            "attempt 2 failed after 2.5s on mail-3, charged: 451 try again later",
            "next attempt after 10s",
        ),
        (
            Retry(due_at=NOW + 12_500, cause=CODELESS, delay=10, charged=False),
            "attempt 2 failed after 2.5s on mail-3, spared: connection refused [ECONNREFUSED]",
            "next attempt after 10s",
        ),
        (
            Park(gate="ses", due_at=NOW, cause=CAUSE),
            "attempt 2 failed after 2.5s on mail-3, spared: 451 try again later",
            "parked until ses answers again",
        ),
        (
            Park(gate="budget", due_at=NOW, cause=CAUSE, waiting_for="budget", charged=True),
            "attempt 2 failed after 2.5s on mail-3, charged: 451 try again later",
            "parked until its budget allows a retry",
        ),
        (
            Dead(death="exhausted", cause=CAUSE, charged=True),
            "attempt 2 failed after 2.5s on mail-3, charged: 451 try again later",
            "died: exhausted",
        ),
        (
            Dead(death="poison", cause=Cause(reason="took its worker down 3 times"), crashed=True),
            "attempt 2 was lost: its worker died after 2.5s on mail-3",
            "died: poison: took its worker down 3 times",
        ),
        (Return(crashed=True), "attempt 2 was lost: its worker died after 2.5s on mail-3", "ready again"),
        (
            Return(),
            "attempt 2 was given back by its worker after 2.5s on mail-3",
            "ready again, uncharged: the worker was stopping, or had not begun it",
        ),
        (Snooze(due_at=NOW + 62_500), "attempt 2 asked to be called again in 1m after 2.5s on mail-3", ""),
        (Succeed(), "attempt 2 succeeded after 2.5s on mail-3", ""),
        (Start(session="mail-3"), "attempt 2 started on mail-3", ""),
        (
            Cancel(by="ana", reason="ordered twice"),
            "attempt 2 was stopped after 2.5s on mail-3",
            "cancelled by ana: ordered twice",
        ),
        (Cancel(), "attempt 2 gave up after 2.5s on mail-3", "cancelled by its own task"),
        (ManualRetry(by="ana", reason="fixed", due_at=NOW, granted=1), "retried by ana: fixed", "1 more granted"),
        (
            ManualRetry(by="ana", reason="fixed", due_at=NOW + 62_500),
            "retried by ana: fixed",
            "next attempt after 1m",
        ),
        (Revive(due_at=NOW), "revived: given all its attempts again", ""),
    ],
)
def test_every_move_is_a_sentence(move: Move, text: str, then: str) -> None:
    step = ended_by(move)
    assert (step.text, step.then, step.at) == (text, then, NOW + 2_500)


def test_a_waiting_job_that_is_cancelled_made_no_attempt() -> None:
    job = Job(id="j", task="send", created_at=NOW, due_at=NOW)
    given_up = change.cancel(job, change.Request(by="ana", reason="ordered twice"), NOW + 5)
    assert [(step.text, step.attempt) for step in story(given_up.job, [given_up.event])] == [
        ("enqueued", 0),
        ("cancelled by ana: ordered twice", 0),
    ]


def test_a_waiting_job_that_dies_made_no_attempt() -> None:
    job = Job(id="j", task="send", created_at=NOW, due_at=NOW)
    died = change.expire(job, NOW + 5)
    assert [step.text for step in story(died.job, [died.event])] == [
        "enqueued",
        "died: expired: its deadline passed before it could run",
    ]


def test_what_no_event_tells_is_known_from_the_job() -> None:
    waiting = Job(id="j", task="send", created_at=NOW, due_at=NOW)
    running = change.lease(waiting, "mail-3", NOW + 5).job
    assert [(step.text, step.at) for step in story(running, [])[1:]] == [("attempt 1 started on mail-3", NOW + 5)]
    done = change.make(running, Succeed(), NOW + 9).job
    assert [(step.text, step.at) for step in story(done, [])[1:]] == [("attempt 1 succeeded", NOW + 9)]
    stopping = replace(running, cancel_request=CancelRequest(by="ana", reason="no"))
    assert story(stopping, [])[-1].text == "asked to stop by ana: no"


def test_events_that_are_gone_are_said_to_be_gone() -> None:
    dead = Job(
        id="j",
        task="send",
        created_at=NOW,
        due_at=NOW,
        version=9,
        state="dead",
        death="exhausted",
        cause=CAUSE,
        finished_at=NOW + 7,
    )
    assert [step.text for step in story(dead, [])] == [
        "enqueued",
        "what happened first is no longer kept",
        "died: exhausted: 451 try again later",
    ]
    cancelled = Job(id="j", task="send", created_at=NOW, due_at=NOW, version=9, state="cancelled", finished_at=NOW)
    assert story(cancelled, [])[-1].text == "cancelled"


# what people see


def test_attempts_are_told_in_words() -> None:
    job = Job(id="j", task="send", created_at=NOW, due_at=NOW, max_attempts=5)
    assert attempts_of(job) == "not tried yet, 0 of 5 charged, 0 spared"
    tried = Job(
        id="j", task="send", created_at=NOW, due_at=NOW, max_attempts=5, granted=1, attempt=7, charged=3, spared=4
    )
    assert attempts_of(tried) == "attempt 7, 3 of 6 charged (1 granted), 4 spared"
    endless = Job(id="j", task="send", created_at=NOW, due_at=NOW, attempt=2, charged=2)
    assert attempts_of(endless) == "attempt 2, 2 charged, no limit, 0 spared"


def test_instants_are_told_in_local_time_with_the_date_unless_it_is_today() -> None:
    local = datetime.fromtimestamp(NOW / 1_000, UTC).astimezone()
    assert clock_time(NOW, NOW) == f"{local:%H:%M:%S}"
    assert clock_time(NOW, NOW + 2 * 86_400_000) == f"{local:%Y-%m-%d %H:%M:%S}"
    assert (relative(NOW + 300_000, NOW), relative(NOW - 61_000, NOW)) == ("in 5m", "1m1s ago")
    ages = [roughly(NOW - age, NOW) for age in (0, 2_000, 61_000, 7_200_000, 90_000_000)]
    assert ages == ["now", "2s ago", "1m ago", "2h ago", "1d ago"]
    assert roughly(NOW + 61_000, NOW) == "in 1m"


def test_show_tells_the_whole_story() -> None:
    now = clock.now()

    async def live() -> str:
        async with Reprieve("sqlite:///jobs.db") as app:

            @app.task(name="send", dependency="ses")
            def send(user: int, template: str = "") -> None: ...

            handle = await send.aenqueue(42, template="hello")
            await app.store.heartbeat(Heartbeat(session="mail-3", now=now, lease=60.0, slots=1, is_new=True))
            claim = Claim(session="mail-3", number=1, now=now + 1_000, queues=("default",), limit=1)
            (job,) = (await app.store.claim(claim)).jobs
            failed = change.settle(job, Dead(death="permanent", cause=CAUSE, charged=True), now + 3_500)
            await app.store.claim(Claim(session="mail-3", number=2, now=now + 3_500, changes=(failed,)))
            await handle.aretry(by="ana", reason="the address is fixed", force=True)
            return handle.id

    job = asyncio.run(live())
    text = reprieve("jobs", "show", job[-8:], "--store", "sqlite:///jobs.db").stdout
    assert re.search(r'arguments +42, template="hello"', text)
    assert re.search(r"attempts +attempt 1, 1 of \d+ charged, 0 spared", text)
    assert re.search(
        r"\d\d:\d\d:\d\d +enqueued\n"
        r"\d\d:\d\d:\d\d +attempt 1 failed after 2.5s on mail-3, charged: 451 try again later\n"
        r" +→ died: permanent\n"
        r"\d\d:\d\d:\d\d +retried by ana: the address is fixed\n",
        re.sub(r" +\n", "\n", text),
    )
    facts = answer("jobs", "show", job, "--store", "sqlite:///jobs.db")
    assert [step["what"] for step in facts["story"]] == ["enqueued", "failed", "retried"]
    assert facts["story"][1] | {"at": 0} == {
        "what": "failed",
        "text": "attempt 1 failed after 2.5s on mail-3, charged: 451 try again later",
        "then": "died: permanent",
        "at": 0,
        "attempt": 1,
        "session": "mail-3",
        "seconds": 2.5,
        "cost": "charged",
        "code": "451",
        "reason": "451 try again later",
    }
    assert facts["story"][2]["by"] == "ana"
    (attempt,) = facts["attempts"]
    assert (attempt["session"], attempt["cost"], attempt["endedAt"] - attempt["startedAt"]) == (
        "mail-3",
        "charged",
        2_500,
    )
