"""The cause of a failure: what is stored of it with the job and with its event."""

import pytest
from msgspec.structs import replace

from reprieve.core import change
from reprieve.core.cause import MAX_NAME_CHARS, MAX_TRACEBACK_BYTES, cause_of, fingerprint_of
from reprieve.core.decide import Conditions, decide
from reprieve.core.events import replay
from reprieve.core.failure import Failure
from reprieve.core.job import Cause, Job
from reprieve.core.move import Dead, Park, Retry
from reprieve.core.outcome import Crashed, Failed, Snoozed
from reprieve.core.policy import Policy
from reprieve.core.text import last_lines
from reprieve.core.verdict import Verdict

NOW = 1_760_000_000_000
WAITING = Job(id="j", task="send", created_at=NOW, due_at=NOW, max_attempts=3)
RUNNING = change.lease(WAITING, "w1", NOW).job
REFUSED = Failure(
    message="password=hunter2 refused",
    types=("builtins.ConnectionError", "OSError"),
    traceback='Traceback (most recent call last):\n  File "shop.py", line 7, in send\nConnectionError: refused',
)
DOWN = Verdict(kind="transient", scope="dependency", code="ECONNREFUSED", rule="python:ConnectionError")


def test_a_cause_has_the_type_rule_scope_duration_and_traceback_of_its_failure() -> None:
    assert cause_of(REFUSED, DOWN, 1.23456789) == Cause(
        reason="password=*** refused",
        code="ECONNREFUSED",
        kind="transient",
        fingerprint=fingerprint_of(REFUSED).id,
        type="builtins.ConnectionError",
        rule="python:ConnectionError",
        scope="dependency",
        duration=1.234568,
        traceback=REFUSED.traceback,
    )


def test_a_failure_without_an_exception_has_no_type() -> None:
    cause = cause_of(Failure(message="450 busy", code="450"), Verdict(kind="transient", code="450"))
    assert (cause.type, cause.duration, cause.traceback) == ("", None, "")


def test_a_long_type_and_a_long_rule_are_cut() -> None:
    cause = cause_of(replace(REFUSED, types=("x" * 999,)), replace(DOWN, rule="y" * 999))
    assert len(cause.type) == len(cause.rule) == MAX_NAME_CHARS


def test_the_decision_carries_how_long_the_attempt_took() -> None:
    move = decide(RUNNING, Failed(failure=REFUSED, verdict=DOWN, duration=0.5), Policy(), Conditions(now=NOW, u=0.5))
    assert isinstance(move, Retry)
    assert (move.cause.duration, move.cause.scope) == (0.5, "dependency")


@pytest.mark.parametrize("move", [Retry, Park, Dead])
def test_an_event_has_the_cause_without_its_traceback(move: type[Retry | Park | Dead]) -> None:
    cause = cause_of(REFUSED, DOWN)
    moves: dict[type, Retry | Park | Dead] = {
        Retry: Retry(due_at=NOW, cause=cause, delay=1.0),
        Park: Park(gate="smtp", due_at=NOW, cause=cause),
        Dead: Dead(death="permanent", cause=cause),
    }
    made = change.settle(RUNNING, moves[move], NOW)
    assert made.job.cause == cause
    told = made.event.move
    assert isinstance(told, move)
    assert told.cause == replace(cause, traceback="")
    assert replay(RUNNING, [made.event]) == replace(made.job, cause=told.cause)


def test_an_end_that_no_failure_caused_names_its_rule() -> None:
    late = replace(RUNNING, deadline_at=NOW + 1)
    snoozed = decide(late, Snoozed(delay=9.0), Policy(), Conditions(now=NOW, u=0.5))
    poison = decide(RUNNING, Crashed(alone=True), Policy(max_crashes=1), Conditions(now=NOW, u=0.5))
    assert isinstance(snoozed, Dead)
    assert isinstance(poison, Dead)
    expired = change.expire(WAITING, NOW).job.cause
    assert (snoozed.cause.rule, poison.cause.rule, expired and expired.rule) == ("deadline", "crashes", "deadline")


# the end of a traceback


@pytest.mark.parametrize("letter", ["x", "ö", "語", "\U0001f600"])
def test_the_last_whole_lines_are_kept(letter: str) -> None:
    lines = [f"{number:04} {letter * 30}" for number in range(200)]
    kept = last_lines("\n".join(lines), MAX_TRACEBACK_BYTES)
    assert MAX_TRACEBACK_BYTES - 200 < len(kept.encode()) <= MAX_TRACEBACK_BYTES
    first, *rest = kept.split("\n")
    assert first == "…"
    assert rest == lines[-len(rest) :]


def test_a_text_that_fits_stays_as_it_is() -> None:
    for text in ("", "a\nb", "ö\n" * 3 + "x", "x" * 10):
        assert last_lines(text, 10) == text


def test_of_a_last_line_that_is_too_long_the_beginning_is_kept() -> None:
    assert last_lines("a\n" + "ValueError: " + "ö" * 99, 20) == "ValueError: öö…"
    assert last_lines("x" * 21 + "\n\n", 20) == "x" * 17 + "…"


def test_what_cannot_be_stored_becomes_a_question_mark() -> None:
    assert last_lines("file \ud800.py", 20) == "file ?.py"
