"""Text style: one compact line per event in local time, and a traceback only when it is new."""

import os
import time
from collections.abc import Iterator

import pytest
from structlog import DropEvent
from structlog.typing import EventDict

from reprieve.worker.logtext import MAX_REASON_CHARS, TextRenderer

JOB = {
    "jobId": "0192f0c8-7a10-7000-8000-2f6e690061f5",
    "companyId": "",
    "tenant": "",
    "task": "shop.send_welcome",
    "attempt": 14,
}
FAILURE = {
    **JOB,
    "level": "info",
    "maxAttempts": 5,
    "charged": 0,
    "spared": 13,
    "errorCode": "ConnectionRefusedError",
    "errorReason": "[Errno 111] Connection refused",
    "errorType": "ConnectionRefusedError",
    "isRetryable": True,
    "isCharged": False,
    "fingerprint": "a1",
    "repeatedAfter": None,
    "traceback": "Traceback (most recent call last):\n  File …\nConnectionRefusedError: refused",
}
PARKED = {**FAILURE, "event": "job parked", "gate": "smtp", "noAnswerFor": 13.2, "nextRetryDelay": 1_320}
RETRY = {**FAILURE, "event": "retry scheduled", "nextRetryDelay": 1_080, "charged": 1, "isCharged": True}
BELOW = "\n    Traceback (most recent call last):\n      File …\n    ConnectionRefusedError: refused"


@pytest.fixture(autouse=True)
def _in_berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = os.environ.get("TZ")
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.setenv("TZ", before) if before is not None else monkeypatch.delenv("TZ")
    time.tzset()


def line(event: EventDict, renderer: TextRenderer | None = None, second: int = 21) -> str:
    """Return what is shown of an event."""
    stamped = {"level": "info", "timestamp": f"2026-03-11T03:13:{second:02}.123456Z", **event}
    return (renderer or TextRenderer(colours=False))(None, "info", stamped)


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (
            PARKED,
            (
                "parked    shop.send_welcome 690061f5  Connection refused; smtp silent for 13s, next try in 1.3s "
                "(spared, 0/5 charged)"
            ),
        ),
        (
            PARKED | {"noAnswerFor": 0.0},
            (
                "parked    shop.send_welcome 690061f5  Connection refused; waits for smtp, next try in 1.3s "
                "(spared, 0/5 charged)"
            ),
        ),
        (
            PARKED | {"gate": "budget", "charged": 1, "isCharged": True},
            (
                "parked    shop.send_welcome 690061f5  Connection refused; waits for its retry budget, "
                "next try in 1.3s (1/5 charged)"
            ),
        ),
        (
            RETRY,
            "retry     shop.send_welcome 690061f5  Connection refused; next try in 1.1s (1/5 charged)",
        ),
        (
            RETRY | {"tenant": "acme", "maxAttempts": None, "nextRetryDelay": 90_000},
            "retry     shop.send_welcome 690061f5 for acme  Connection refused; next try in 1m30s (1 charged)",
        ),
        (
            RETRY
            | {"event": "job died", "death": "exhausted", "charged": 5, "errorType": "KeyError", "errorReason": "'x'"},
            "died      shop.send_welcome 690061f5  KeyError: 'x'; exhausted (5/5 charged)",
        ),
        (
            FAILURE | {"event": "job cancelled", "by": "ana", "reason": "wrong user"},
            "cancelled shop.send_welcome 690061f5  by ana: wrong user",
        ),
        (
            FAILURE | {"event": "job recovered", "crashes": 1},
            "recovered shop.send_welcome 690061f5  its worker is gone, it runs again (crash 1)",
        ),
        (
            FAILURE | {"event": "late result refused", "result": "Succeed", "answer": "refused"},
            "refused   shop.send_welcome 690061f5  its Succeed came too late: the job was taken back before",
        ),
        (JOB | {"event": "job started"}, "started   shop.send_welcome 690061f5  attempt 14"),
        (
            JOB | {"event": "job succeeded", "durationMs": 12.5},
            "succeeded shop.send_welcome 690061f5  in 0.0125s (attempt 14)",
        ),
        (
            {
                "event": "worker started",
                "target": "shop:app",
                "store": "sqlite:///jobs.db",
                "queues": ["mail", "default"],
                "tasks": 1,
                "processes": 2,
                "slots": 9,
                "pid": 7,
            },
            (
                "info      worker started: shop:app on sqlite:///jobs.db, queues mail, default, 1 task, "
                "2 processes × 9 slots"
            ),
        ),
        (
            {"event": "worker stopping", "grace": 30.0, "jobs": [JOB["jobId"]], "tasks": ["signup.jobs.nap"]},
            (
                "info      worker stopping: waiting up to 30s for 1 job (signup.jobs.nap 690061f5); "
                "Ctrl-C again gives it back now"
            ),
        ),
        (
            {"event": "worker stopping", "grace": 30.0, "jobs": [JOB["jobId"]] * 5, "tasks": ["nap"] * 5},
            (
                "info      worker stopping: waiting up to 30s for 5 jobs (nap 690061f5, nap 690061f5, nap 690061f5 "
                "and 2 more); Ctrl-C again gives them back now"
            ),
        ),
        (
            {"event": "worker stopping", "grace": 0.0, "jobs": [JOB["jobId"]], "tasks": ["nap"]},
            "info      worker stopping: giving 1 job back now (nap 690061f5)",
        ),
        (
            {"event": "worker stopping", "grace": 30.0, "jobs": [], "tasks": []},
            "info      worker stopping: no job is running",
        ),
        (
            {"event": "store unavailable", "level": "warning", "during": "claiming", "errorReason": "it is away"},
            "warning   store unavailable: it is away (during claiming)",
        ),
        ({"event": "store is back", "during": "claiming"}, "info      store is back"),
        (
            {"event": "child died", "level": "error", "session": "mail-3", "status": -9, "running": 2},
            "error     child died  session=mail-3 status=-9 running=2",
        ),
        (
            {"event": "no task uses this queue", "level": "warning", "queue": "mial", "didYouMean": None},
            "warning   no task uses this queue  queue=mial",
        ),
    ],
)
def test_each_event_is_one_line_with_the_most_important_first(event: EventDict, expected: str) -> None:
    first = line(event).splitlines()[0]
    assert first == f"04:13:21 {expected}"


def test_lines_of_the_users_own_show_their_job_their_logger_and_their_fields() -> None:
    event = JOB | {"event": "charged ana", "logger": "shop.pay", "amount": 3, "note": "two words", "ids": [1, 2]}
    assert line(event) == (
        "04:13:21 info      shop.send_welcome 690061f5  charged ana  [shop.pay] amount=3 note='two words' ids=1,2"
    )
    assert line({"event": "ready", "logger": "shop"}) == "04:13:21 info      ready  [shop]"
    assert line({"event": "two\nlines"}) == "04:13:21 info      two\n    lines"
    assert line({"event": "odd", "timestamp": "today"}) == "--:--:-- info      odd"


def test_an_exception_that_the_user_logs_is_always_shown_below() -> None:
    renderer = TextRenderer(colours=False)
    event = JOB | {"event": "oops", "level": "error", "traceback": "Traceback:\nKeyError: 1"}
    expected = "04:13:21 error     shop.send_welcome 690061f5  oops\n    Traceback:\n    KeyError: 1"
    assert [line(event, renderer), line(event, renderer)] == [expected, expected]


def test_a_failure_that_repeats_shows_its_traceback_once() -> None:
    renderer = TextRenderer(colours=False)
    assert line(RETRY, renderer).endswith(BELOW)
    assert "Traceback" not in line(RETRY | {"repeatedAfter": 1.1}, renderer)
    assert "Traceback" not in line(RETRY | {"jobId": "0192f0c8-7a10-7000-8000-2f6e690061f6"}, renderer)
    assert line(RETRY | {"fingerprint": "b2"}, renderer).endswith(BELOW)
    assert line(RETRY | {"timestamp": "2026-03-11T03:14:21.2Z"}, renderer).endswith(BELOW)


def test_a_job_that_stays_parked_is_shown_about_every_ten_seconds() -> None:
    renderer, waits = TextRenderer(colours=False), []
    for silent in range(60):
        with_repeat = PARKED | {"noAnswerFor": silent + 0.1, "repeatedAfter": 1.0 if silent else None}
        try:
            waits.append((silent, line(with_repeat, renderer)))
        except DropEvent:
            continue
    assert [silent for silent, _ in waits] == [0, 10, 20, 30, 40, 50]
    # With --log-level debug nothing is left out.
    assert line(PARKED | {"repeatedAfter": 1.0}, TextRenderer(colours=False, is_complete=True))


def test_colours_follow_the_outcome_and_can_be_left_out() -> None:
    coloured = line(PARKED, TextRenderer(colours=True)).splitlines()[0]
    assert coloured.startswith(
        "\x1b[2m04:13:21\x1b[0m \x1b[36mparked   \x1b[0m shop.send_welcome \x1b[2m690061f5\x1b[0m  "
    )
    assert coloured.endswith(" \x1b[2m(spared, 0/5 charged)\x1b[0m")
    assert "\x1b[1;31mdied" in line(RETRY | {"event": "job died", "death": "poison"}, TextRenderer(colours=True))
    assert "\x1b" not in line(PARKED)


def test_a_long_error_is_cut_and_stays_on_its_line() -> None:
    shown = line(RETRY | {"errorReason": "bad\nnews " * 200, "traceback": ""})
    assert "\n" not in shown
    assert len(shown) < MAX_REASON_CHARS + 150
