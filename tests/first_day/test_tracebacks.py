"""What a new user sees of a task that fails: where, in their own code, and nothing that should stay secret."""

import json
import os
import pty
import subprocess
import threading
from typing import Any

import pytest

from reprieve.clock import ticks
from tests.first_day.user import PATIENCE, Program, User

SHOP = """
import asyncio
import json
import logging

import structlog

from reprieve import Policy, Reprieve
from reprieve.backoff import Formula, fixed

app = Reprieve("sqlite:///jobs.db", policy=Policy(max_attempts=2, backoff=fixed("50ms")))
log = logging.getLogger("shop")


def parse(text):
    return json.loads(text)


@app.task
async def on_the_loop():
    parse("{")


@app.task
def in_a_thread():
    parse("{")


@app.task(executor="process")
def in_a_process():
    parse("{")


@app.task
async def connect():
    try:
        parse("{")
    except ValueError as error:
        raise ConnectionError("cannot reach postgresql://bob:hunter2@db/shop") from error


@app.task(timeout="200ms")
async def hang():
    await asyncio.sleep(60)


class Rules:
    def judge(self, failure):
        raise LookupError("no rule")


def no_wait(failures):
    raise KeyError("no wait")


@app.task(policy=Policy(max_attempts=2, rules=[Rules()], backoff=Formula(no_wait)))
async def judged():
    raise ConnectionError("refused")


@app.task
async def talk():
    log.info("stdlib on the loop")
    structlog.get_logger().info("structlog on the loop")
    await asyncio.gather(deeper(), asyncio.to_thread(log.info, "stdlib in a helper thread"))
    print("printed on the loop", flush=True)


async def deeper():
    log.info("stdlib in a gathered task", extra={"colour": "red", "attempt": 99})


@app.task
def talk_in_a_thread():
    log.info("stdlib in a thread")
    structlog.get_logger().warning("structlog in a thread")


@app.task(executor="process")
def talk_in_a_process():
    log.info("stdlib in a process")
    structlog.get_logger().info("structlog in a process")
    print("printed in a process", flush=True)
"""


def enqueue(user: User, *tasks: str) -> None:
    """Save the application and enqueue calls of its tasks, for the tenant acme."""
    user.write("shop.py", SHOP)
    calls = "; ".join(f"shop.{task}.using(tenant='acme').enqueue()" for task in tasks)
    done = user.python("-c", f"import shop; {calls}")
    assert done.status == 0, done.stderr


def entries(worker: Program) -> list[dict[str, Any]]:
    """Return the lines of JSON that a worker has written so far."""
    whole = worker.output.rpartition("\n")[0]
    return [json.loads(line) for line in whole.splitlines() if line.startswith("{")]


def entry(worker: Program, event: str, **fields: object) -> dict[str, Any]:
    """Wait for a line with this event and these fields, and return it."""
    deadline = ticks() + PATIENCE
    while True:
        for one in entries(worker):
            if one["event"] == event and fields.items() <= one.items():
                return one
        assert worker.process.poll() is None, worker.output
        assert ticks() < deadline, f"no {event!r} with {fields}:\n{worker.output}"
        threading.Event().wait(0.05)


@pytest.mark.parametrize("task", ["on_the_loop", "in_a_thread", "in_a_process"])
def test_every_failed_attempt_shows_the_users_own_frames(user: User, task: str) -> None:
    enqueue(user, task)
    with user.running("worker", "shop:app", "-p", "1") as worker:
        died = json.loads(next(line for line in worker.wait_for("job died").splitlines() if "job died" in line))
    lines = died["traceback"].splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1].startswith('  File "shop.py", line ')
    assert lines[1].endswith(f"in {task}")
    assert lines[2:5] == ['    parse("{")', lines[3], "    return json.loads(text)"]
    assert lines[3].endswith("in parse")
    assert lines[5].startswith("  … 3 frames in python3.")
    assert lines[6].startswith("json.decoder.JSONDecodeError: Expecting property name")
    assert len(lines) == 7
    assert (died["errorType"], died["companyId"]) == ("json.decoder.JSONDecodeError", "acme")


def test_secrets_are_nowhere_in_the_log_or_in_the_job(user: User) -> None:
    enqueue(user, "connect")
    with user.running("worker", "shop:app", "-p", "1") as worker:
        output = worker.wait_for("job died")
    assert "hunter2" not in output
    died = next(one for one in map(json.loads, output.splitlines()) if one["event"] == "job died")
    assert "direct cause of the following exception" in died["traceback"]
    assert died["errorReason"] == "cannot reach postgresql://bob:***@db/shop"
    shown = user.reprieve("jobs", "list", "--store", "sqlite:///jobs.db", "--json")
    assert "hunter2" not in shown.stdout


def test_an_attempt_that_ran_too_long_shows_where_it_was(user: User) -> None:
    enqueue(user, "hang")
    with user.running("worker", "shop:app", "-p", "1") as worker:
        output = worker.wait_for("job died")
    died = next(one for one in map(json.loads, output.splitlines()) if one["event"] == "job died")
    assert died["errorType"] == "TimeoutError"
    assert "await asyncio.sleep(60)" in died["traceback"]


def test_rules_and_backoffs_of_the_user_that_fail_show_where(user: User) -> None:
    enqueue(user, "judged")
    with user.running("worker", "shop:app", "-p", "1") as worker:
        rules = entry(worker, "policy failed", part="rules")
        backoff = entry(worker, "policy failed", part="backoff")
        retried = entry(worker, "retry scheduled")
    assert 'raise LookupError("no rule")' in rules["traceback"]
    assert rules["errorReason"] == "no rule"
    assert 'raise KeyError("no wait")' in backoff["traceback"]
    assert 'raise ConnectionError("refused")' in retried["traceback"]
    assert rules["jobId"] == backoff["jobId"] == retried["jobId"]


def test_a_terminal_shows_a_block_below_the_line(user: User) -> None:
    enqueue(user, "connect")
    with user.running("worker", "shop:app", "-p", "1", "--log-style", "text") as worker:
        output = worker.wait_for(" died ")
    lines = output[output.index(" retry ") :].splitlines()
    assert lines[1] == "    Traceback (most recent call last):"
    assert lines[2].startswith('      File "shop.py", line ')
    # The second attempt failed in the same way: one line says so.
    assert lines[-1].endswith("cannot reach postgresql://bob:***@db/shop; exhausted (2/2 charged)")
    assert output.count("    Traceback (most recent call last):") == 2  # an exception and its cause


def test_a_real_terminal_is_recognised(user: User) -> None:
    enqueue(user, "on_the_loop")
    ours, theirs = pty.openpty()
    command = user.command("worker", "shop:app", "-p", "1")
    environ = user.environ(NO_COLOR="1", TERM="xterm")
    with subprocess.Popen(command, cwd=user.folder, env=environ, stderr=theirs, stdout=theirs, stdin=theirs) as worker:
        os.close(theirs)
        seen = b""
        while b"\n    json.decoder.JSONDecodeError: " not in seen:
            seen += os.read(ours, 10_000)
        worker.terminate()
        while True:
            try:
                if not os.read(ours, 10_000):
                    break
            except OSError:  # so Linux says that the other side is closed
                break
    os.close(ours)
    assert b"\r\n    Traceback (most recent call last):\r\n" in seen
    assert b"{" not in seen.replace(b'parse("{")', b"")


LINES = {
    "talk": [
        "stdlib on the loop",
        "structlog on the loop",
        "stdlib in a gathered task",
        "stdlib in a helper thread",
    ],
    "talk_in_a_thread": ["stdlib in a thread", "structlog in a thread"],
    "talk_in_a_process": ["stdlib in a process", "structlog in a process"],
}


def test_the_users_own_lines_say_which_job_they_are_about(user: User) -> None:
    enqueue(user, *LINES)
    with user.running("worker", "shop:app", "-p", "1", "--log-level", "debug") as worker:
        for task in LINES:
            entry(worker, "job succeeded", task=f"shop.{task}")
        found = entries(worker)
        assert "\nprinted on the loop\n" in worker.output
        assert "\nprinted in a process\n" in worker.output
    by_event = {one["event"]: one for one in found}
    for task, lines in LINES.items():
        (started,) = (one for one in found if one["event"] == "job started" and one["task"] == f"shop.{task}")
        for line in lines:
            facts = {name: by_event[line][name] for name in ("jobId", "task", "companyId")}
            assert facts == {"jobId": started["jobId"], "task": f"shop.{task}", "companyId": "acme"}
            assert by_event[line]["level"] in ("info", "warning")
        (succeeded,) = (one for one in found if one["event"] == "job succeeded" and one["task"] == f"shop.{task}")
        assert (succeeded["attempt"], succeeded["durationMs"] > 0) == (1, True)
    # What the user says goes before what is added.
    assert (by_event[LINES["talk"][2]]["colour"], by_event[LINES["talk"][2]]["attempt"]) == ("red", 99)
    assert by_event["stdlib in a thread"]["logger"] == "shop"


def test_successes_are_not_logged_unless_they_are_asked_for(user: User) -> None:
    enqueue(user, "talk_in_a_thread", "on_the_loop")
    with user.running("worker", "shop:app", "-p", "1") as worker:
        worker.wait_for("job died")
        output = worker.wait_for("structlog in a thread")
    assert "job succeeded" not in output
    assert "job started" not in output


OWN = """
line = "mine %(levelname)s %(name)s job=%(jobId)s %(task)s %(companyId)s %(attempt)s %(message)s"
logging.basicConfig(level="INFO", format=line)
"""


def test_logging_that_the_user_has_set_up_stays_and_gets_the_fields(user: User) -> None:
    enqueue(user, "talk_in_a_thread", "talk_in_a_process")
    user.write("shop.py", SHOP.replace('log = logging.getLogger("shop")', OWN + 'log = logging.getLogger("shop")'))
    with user.running("worker", "shop:app", "-p", "1", "--log-level", "debug") as worker:
        for task in ("talk_in_a_thread", "talk_in_a_process"):
            entry(worker, "job succeeded", task=f"shop.{task}")
        lines = worker.output.splitlines()
        found = {one["task"]: one for one in entries(worker) if one["event"] == "job succeeded"}
    for task, text in (("talk_in_a_thread", "stdlib in a thread"), ("talk_in_a_process", "stdlib in a process")):
        job = found[f"shop.{task}"]
        (line,) = (line for line in lines if text in line)
        assert line == f"mine INFO shop job={job['jobId']} shop.{task} acme 1 {text}"
