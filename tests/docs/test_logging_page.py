"""The page about logging lists every event under its level, with its fields, and its numbers are those of the code."""

import ast
import json
import logging
import re
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from reprieve.cli import tail
from reprieve.core import change
from reprieve.core.failure import Failure
from reprieve.core.job import Cause, Job
from reprieve.core.move import Park, Retry
from reprieve.worker import job_logging, lifespans, logs, logtext, tracebacks

EXAMPLE_ID = "0192f0c8-7a10-7000-8000-2f6e11c40ae1"
ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/operate/logging.md").read_text("utf-8")
ROW = re.compile(r"^\| `([^`]+)` \| (debug|info|warning|error) \|(.*?)\|.*\|$", re.MULTILINE)
GROUPS = {"_names": "the job", "_facts": "the failure", "_failed": "the attempt", "_wait": "the wait"}


def calls() -> list[tuple[str, str, set[str]]]:
    """Return the event, the level and the fields of every line that is written through structlog."""
    found: list[tuple[str, str, set[str]]] = []
    for path in sorted((ROOT / "src/reprieve").rglob("*.py")):
        source = path.read_text("utf-8")
        if 'structlog.get_logger("reprieve")' not in source:
            continue
        for node in ast.walk(ast.parse(source)):
            if not isinstance(node, ast.Call):
                continue
            owner, _, verb = ast.unparse(node.func).rpartition(".")
            if owner == "log":
                level = "error" if verb == "exception" else verb
                found += [(name, level, fields_of(node)) for name in texts_in(node.args[0])]
            elif verb == "_log_bug":
                fields = fields_of(node) | {"the job", "the exception", "errorReason"}
                found += [(name, "error", fields) for name in texts_in(node.args[0])]
    return found


def texts_in(expression: ast.expr) -> list[str]:
    return [node.value for node in ast.walk(expression) if isinstance(node, ast.Constant) and type(node.value) is str]


def fields_of(call: ast.Call) -> set[str]:
    named = {keyword.arg for keyword in call.keywords if keyword.arg is not None}
    spread = {ast.unparse(keyword.value).partition("(")[0] for keyword in call.keywords if keyword.arg is None}
    fields = {"traceback" if name == "exc_info" else name for name in named} | {GROUPS[name] for name in spread}
    if isinstance(call.func, ast.Attribute) and call.func.attr == "exception":
        fields.add("traceback")
    return fields - {"errorType", "traceback"} | {"the exception"} if "errorType" in fields else fields


def test_every_event_is_listed_with_its_level_and_fields() -> None:
    listed = {name: (level, fields) for name, level, fields in ROW.findall(PAGE)}
    written = calls()
    assert {name for name, _, _ in written} == set(listed)
    for name, level, fields in written:
        assert listed[name][0] == level, name
        said = set(re.findall(r"`([^`]+)`", listed[name][1]))
        said |= {group for group in (*GROUPS.values(), "the exception") if group in listed[name][1]}
        assert said == fields, name


def test_the_example_has_every_field_of_its_event() -> None:
    (block,) = re.findall(r"^```json\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    example = json.loads(block)
    names = {"event", "level", "timestamp", "jobId", "companyId", "tenant", "task", "attempt"}
    facts = {"maxAttempts", "charged", "spared", "errorCode", "errorReason", "isRetryable", "nextRetryDelay"}
    attempt = {"isCharged", "fingerprint", "repeatedAfter", "errorType", "traceback"}
    assert set(example) == names | facts | attempt


def test_the_groups_of_fields_are_those_of_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "_level", logging.INFO)
    job = Job(id=EXAMPLE_ID, task="shop.send_welcome", state="running", attempt=2, created_at=0, due_at=0)
    failure = Failure(types=("ValueError",), message="no", traceback="Traceback …")
    cause = Cause(reason="no", fingerprint="a1")
    with capture_logs() as lines:
        job_logging.log_settled(change.make(job, Retry(due_at=2, cause=cause, delay=1.0), 1), failure)
        job_logging.log_settled(change.make(job, Park(gate="smtp", due_at=2, cause=cause), 1), failure)
    retried, parked = (set(line) - {"event", "log_level"} for line in lines)
    text = " ".join(PAGE.partition("Every line has `event`")[2].partition("\n\n")[0].split())
    groups = [set(re.findall(r"`([^`]+)`", part)) for part in text.partition("stands for")[2].split(";")]
    named = set().union(*groups)
    assert named == retried | parked


def test_every_number_is_that_of_the_code() -> None:
    worker = (ROOT / "docs/operate/worker.md").read_text("utf-8")
    for page, text, number in (
        (PAGE, "within 2,048 characters", tracebacks.SHORT.chars == 2_048),
        (PAGE, "after 10 s; after 60 s", (lifespans.SLOW_AFTER_SECONDS, lifespans.START_TIMEOUT_SECONDS) == (10, 60)),
        (PAGE, "at most every 10 s", logtext.PARKED_EVERY_SECONDS == 10),
        (PAGE, "again after a minute", logtext.REPEAT_AFTER_SECONDS == 60),
        (PAGE, "about once a second", tail.POLL_SECONDS == 1),
        (PAGE, "more than 10 s late", tail.OVERLAP_MS == 10_000),
        (worker, "It has 60 s to start", lifespans.START_TIMEOUT_SECONDS == 60),
        (worker, "2 s at the least", lifespans.MIN_STOP_SECONDS == 2),
    ):
        assert text in page
        assert number, text
