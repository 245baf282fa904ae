"""Tracebacks: the application's own frames, libraries folded, secrets hidden, and never more than so much."""

import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from structlog.testing import capture_logs

from reprieve.core import change
from reprieve.core.cause import cause_of
from reprieve.core.job import Job
from reprieve.core.move import Dead
from reprieve.core.outcome import Failed
from reprieve.core.policy import Policy
from reprieve.frames import count_as_own
from reprieve.signals import Fail, Retry
from reprieve.worker import logs, tracebacks
from reprieve.worker.job_logging import log_settled
from reprieve.worker.runner import outcome_of
from reprieve.worker.tracebacks import FULL, SHORT, describe

JOB = Job(id="j", task="send", created_at=0, due_at=0)
HERE = Path(__file__).name


def raised(function: Callable[[], object]) -> Exception:
    """Return what a function raises."""
    try:
        function()
    except Exception as error:  # noqa: BLE001 - that is what is asked for
        return error
    pytest.fail("nothing was raised")


def parse() -> object:
    return json.loads("{")


def test_own_frames_have_their_source_and_library_frames_are_folded() -> None:
    lines = describe(raised(parse)).splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert "in parse" in lines[-4]
    assert lines[-3].strip() == 'return json.loads("{")'
    assert lines[-2].strip().startswith("… 3 frames in python3.")
    assert lines[-2].endswith("/json …")
    assert lines[-1].startswith("json.decoder.JSONDecodeError: Expecting property name")


def forget_rendered() -> None:
    """Clear what is cached: a process has one working folder, this test has its own."""
    tracebacks._frame.cache_clear()  # noqa: SLF001 - as above
    tracebacks._render.cache_clear()  # noqa: SLF001 - as above


def test_paths_below_the_working_folder_are_relative(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parent)
    forget_rendered()
    try:
        assert f'File "{HERE}", line ' in describe(raised(parse))
    finally:
        forget_rendered()


def test_what_led_to_an_exception_is_shown_before_it() -> None:
    def send() -> None:
        try:
            parse()
        except ValueError as error:
            message = "no template"
            raise LookupError(message) from error

    text = describe(raised(send))
    assert text.index("JSONDecodeError") < text.index("direct cause of the following") < text.index("LookupError: no")


def test_the_context_is_shown_unless_it_is_suppressed() -> None:
    def send(*, is_hidden: bool) -> None:
        try:
            parse()
        except ValueError:
            if is_hidden:
                raise LookupError from None
            raise LookupError  # noqa: B904 - that is the point

    shown, hidden = raised(lambda: send(is_hidden=False)), raised(lambda: send(is_hidden=True))
    assert "another exception occurred" in describe(shown)
    assert "JSONDecodeError" not in describe(hidden)


def test_secrets_are_hidden_in_messages_notes_and_source_lines() -> None:
    def send() -> None:
        error = ConnectionError("cannot reach redis://:hunter2@db")
        error.add_note("Authorization: Bearer hunter2hunter2")
        raise error

    text = describe(raised(send))
    assert "hunter2" not in text
    assert "ConnectionError: cannot reach redis://:***@db" in text
    assert "Authorization: ***" in text


def test_locals_are_never_shown() -> None:
    def send() -> None:
        salary = 123_456 + 1
        raise ValueError(str(bool(salary)))

    assert "123457" not in describe(raised(send))


def test_a_group_shows_the_first_few_of_its_exceptions() -> None:
    def send() -> None:
        message = "many"
        raise ExceptionGroup(message, [raised(parse), *(ValueError(f"number {n}") for n in range(10))])

    text = describe(raised(send))
    assert "ExceptionGroup: many (11 sub-exceptions)" in text
    assert "  |     return json.loads" in text
    assert "  | ValueError: number 0" in text
    assert f"… {11 - SHORT.group} more exceptions …" in text
    assert "number 5" not in text


def deep(levels: int) -> None:
    if not levels:
        raise ValueError
    deep(levels - 1)


def nested(levels: int) -> Exception:
    return ExceptionGroup("g", [nested(levels - 1), ValueError("x" * 400)]) if levels else ValueError("y" * 10_000)


def chained(levels: int) -> None:
    try:
        if levels:
            chained(levels - 1)
        parse()
    except Exception as error:
        raise RuntimeError("z" * 300) from error


@pytest.mark.parametrize(
    "send",
    [
        lambda: deep(500),
        lambda: chained(20),
        lambda: (_ for _ in ()).throw(nested(8)),
        lambda: (_ for _ in ()).throw(ValueError("a\n" * 100_000)),
        lambda: (_ for _ in ()).throw(ExceptionGroup("g", [nested(3)] * 50)),
    ],
    ids=["recursion", "a long chain", "groups in groups", "a long message", "a wide group"],
)
def test_the_size_is_bounded_and_the_end_is_kept(send: Callable[[], object]) -> None:
    error = raised(send)
    text = describe(error)
    assert len(text) <= SHORT.chars
    assert text.count("  File ") <= 5 * SHORT.frames
    assert type(error).__name__ in text


def test_a_deep_recursion_shows_where_it_began_and_where_it_ended() -> None:
    text = describe(raised(lambda: deep(500)))
    assert "more frames …" in text
    assert "in test_a_deep_recursion_shows_where_it_began_and_where_it_ended" in text
    assert text.splitlines()[-2].strip() == "raise ValueError"


def test_causes_in_a_circle_come_to_an_end() -> None:
    first, second = raised(parse), raised(lambda: deep(0))
    first.__cause__, second.__cause__ = second, first
    assert describe(first).count("direct cause") == 1


def test_a_message_moves_no_cursor_and_a_broken_one_is_left_out() -> None:
    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    def fail(error: Exception) -> Exception:
        def send() -> None:
            raise error

        return raised(send)

    assert "\x1b" not in describe(fail(ValueError("a\x1b[2Jb")))
    assert describe(fail(Broken())).endswith("Broken")


def test_an_exception_that_was_never_raised_has_no_traceback() -> None:
    assert describe(ValueError("a")) == ""


def library(folder: Path, name: str) -> ModuleType:
    """Install a module among the libraries of some environment."""
    place = folder / "lib" / "site-packages" / name
    place.mkdir(parents=True)
    (place / "jobs.py").write_text("def fail():\n    raise ValueError('in a package')\n")
    module = ModuleType(f"{name}.jobs")
    exec(compile((place / "jobs.py").read_text(), str(place / "jobs.py"), "exec"), vars(module))  # noqa: S102 - our own
    return module


def test_an_application_that_is_installed_among_libraries_is_the_users_own(tmp_path: Path) -> None:
    shop = library(tmp_path, "shop_that_is_installed")
    before = describe(raised(shop.fail))
    assert "… 1 frame in site-packages/shop_that_is_installed …" in before
    count_as_own(["shop_that_is_installed.jobs"])
    assert "in fail" in describe(raised(shop.fail))


def test_code_that_libraries_generate_is_folded() -> None:
    names: dict[str, Any] = {"parse": parse}
    exec(compile("def go():\n    parse()\n", "<sqlalchemy generated go() wrapper>", "exec"), names)  # noqa: S102 - our own

    def own() -> None:
        names["go"]()

    text = describe(raised(own))
    assert "… 1 frame in generated code …" in text
    assert "sqlalchemy generated" not in text


def test_a_thread_shows_the_frames_of_its_function() -> None:
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.append(describe(raised(parse))))
    thread.start()
    thread.join()
    assert "in parse" in found[0]


@pytest.fixture
def logging_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[logs.Level], None]:
    """Say from which level on this process logs, until the test ends."""

    def say(level: logs.Level) -> None:
        monkeypatch.setattr(logs, "_level", {"debug": 10, "info": 20, "warning": 30, "error": 40}[level])

    return say


def test_a_traceback_is_made_for_the_job_and_logged_only_where_the_log_shows_it(
    logging_at: Callable[[logs.Level], None],
) -> None:
    for level, is_shown in (("debug", True), ("info", True), ("warning", True), ("error", False)):
        logging_at(level)  # type: ignore[arg-type]  # the words above
        outcome = outcome_of(raised(parse), JOB, Policy(), 0)
        assert isinstance(outcome, Failed)
        cause = cause_of(outcome.failure, outcome.verdict)
        assert cause.traceback == outcome.failure.traceback
        dead = change.make(change.lease(JOB, "w", 0).job, Dead(death="permanent", cause=cause), 0)
        with capture_logs() as lines:
            log_settled(dead, outcome.failure)
        assert ("traceback" in lines[0]) == is_shown


def test_a_full_traceback_shows_the_frames_of_libraries() -> None:
    text = describe(raised(parse), FULL)
    assert text.count("  File ") == 5
    assert "in JSONDecoder.raw_decode" in text
    assert "frames in" not in text


def test_a_full_traceback_is_bounded_too() -> None:
    for send in (lambda: deep(500), lambda: chained(50), lambda: (_ for _ in ()).throw(ValueError("a\n" * 100_000))):
        error = raised(send)
        text = describe(error, FULL)
        assert len(text) <= FULL.chars
        assert type(error).__name__ in text
    assert describe(raised(lambda: deep(50)), FULL).count("    deep(levels - 1)\n") == 50


def test_signals_show_where_they_were_raised(logging_at: Callable[[logs.Level], None]) -> None:
    logging_at("info")

    def fail() -> None:
        message = "no such order"
        raise Fail(message)

    def retry() -> None:
        try:
            parse()
        except ValueError as error:
            raise Retry from error

    for function, text in ((fail, "Fail: no such order"), (retry, "JSONDecodeError")):
        outcome = outcome_of(raised(function), JOB, Policy(), 0)
        assert isinstance(outcome, Failed)
        assert text in outcome.failure.traceback
        assert sys._getframe().f_code.co_name in outcome.failure.traceback  # noqa: SLF001 - the name of this test
