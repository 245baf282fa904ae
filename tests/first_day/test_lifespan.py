"""Lifespans with real processes: opened once in each before any job, closed after the last, and what if they fail."""

import json
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from reprieve.clock import ticks
from tests.first_day.user import PATIENCE, Program, User

SHOP = """
import asyncio
import os
from pathlib import Path

from reprieve import Policy, Reprieve
from reprieve.backoff import fixed

app = Reprieve("sqlite:///jobs.db", policy=Policy(max_attempts=50, backoff=fixed("100ms")))


def note(*words):
    with open("notes", "a") as file:
        file.write(" ".join(map(str, (os.getpid(), *words))) + "\\n")


class SmtpPool:
    def __init__(self):
        self.loop = asyncio.get_running_loop()
        self.is_open = False

    async def __aenter__(self):
        if Path("down").exists():
            raise ConnectionRefusedError("cannot reach smtp://bob:hunter2@mx")
        self.is_open = True
        note("open")
        return self

    async def __aexit__(self, *_):
        if Path("hang").exists():
            await asyncio.sleep(600)
        self.is_open = False
        note("close")


@app.lifespan
async def resources():
    async with SmtpPool() as pool:
        yield pool


def use(kind, loop=None):
    pool = app.resource(SmtpPool)
    assert pool.is_open
    assert loop is None or pool.loop is loop
    note(kind)


@app.task
async def on_the_loop(name):
    while Path(f"wait-{name}").exists():
        await asyncio.sleep(0.02)
    use("loop", asyncio.get_running_loop())


@app.task
def in_a_thread():
    use("thread")


@app.task(executor="process")
async def in_a_process():
    use("process", asyncio.get_running_loop())


@app.task
def die():
    os.kill(os.getpid(), 9)
"""


@pytest.fixture
def shop(user: User) -> User:
    user.write("shop.py", SHOP)
    return user


def enqueue(user: User, *calls: str) -> None:
    done = user.python("-c", "import shop; " + "; ".join(f"shop.{call}" for call in calls))
    assert done.status == 0, done.stderr


def notes(user: User) -> list[tuple[str, str]]:
    """Return what the processes have written down: each line a process and a word."""
    path = user.folder / "notes"
    lines = path.read_text().splitlines() if path.exists() else []
    return [(line.split()[0], line.split()[1]) for line in lines]


def noted(user: User, word: str, times: int, worker: Program) -> None:
    """Wait until a word was written down so many times."""
    deadline = ticks() + PATIENCE
    while [one for _, one in notes(user)].count(word) < times:
        assert ticks() < deadline, f"{word!r} not {times} times: {notes(user)}\n{worker.output}"
        threading.Event().wait(0.05)


def entries(worker: Program) -> list[dict[str, Any]]:
    return [json.loads(line) for line in worker.output.splitlines() if line.startswith("{")]


def test_it_is_entered_once_in_every_process_and_left_after_the_jobs(shop: User) -> None:
    enqueue(shop, "on_the_loop.enqueue(1)", "in_a_thread.enqueue()", *["in_a_process.enqueue()"] * 2)
    with shop.running("worker", "shop:app", "-p", "1") as worker:
        noted(shop, "process", 2, worker)
        noted(shop, "loop", 1, worker)
        noted(shop, "thread", 1, worker)
        enqueue(shop, "in_a_process.enqueue()")
        noted(shop, "process", 3, worker)
        assert worker.stop() == 0
    by_process: dict[str, list[str]] = {}
    for process, word in notes(shop):
        by_process.setdefault(process, []).append(word)
    for words in by_process.values():
        assert words[0] == "open"
        assert words[-1] == "close"
        assert (words.count("open"), words.count("close")) == (1, 1)
    assert any({"loop", "thread"} <= set(words) for words in by_process.values())
    assert 2 <= len(by_process) <= 3


def test_running_jobs_end_before_it_is_left(shop: User) -> None:
    waits = shop.write("wait-a", "")
    enqueue(shop, "on_the_loop.enqueue('a')")
    with shop.running("worker", "shop:app", "-p", "1", "--log-level", "debug") as worker:
        worker.wait_for("job started")
        worker.process.send_signal(signal.SIGTERM)
        worker.wait_for("worker stopping")
        waits.unlink()
        assert worker.process.wait(PATIENCE) == 0
    assert [word for _, word in notes(shop)] == ["open", "loop", "close"]


def test_a_worker_whose_first_process_cannot_start_ends_with_one_clear_line(shop: User) -> None:
    shop.write("down", "")
    enqueue(shop, "in_a_thread.enqueue()")
    with shop.running("worker", "shop:app", "-p", "2") as worker:
        assert worker.process.wait(PATIENCE) == 1
        output = worker.output
    failed = next(one for one in entries(worker) if one["event"] == "lifespan failed")
    assert 'File "shop.py"' in failed["traceback"]
    assert "async with SmtpPool() as pool:" in failed["traceback"]
    assert failed["errorType"] == "ConnectionRefusedError"
    assert "hunter2" not in output
    (line,) = (line for line in output.splitlines() if line.startswith("error:"))
    assert "a lifespan of shop:app failed when the first worker process started" in line
    # Nothing was claimed, so nothing was charged.
    look = "import shop; print(*(shop.app.job(one.job.id).fetch().attempt for one in testing.enqueued(shop.app)))"
    assert shop.python("-c", f"from reprieve import testing; {look}").stdout == "0\n"


def test_a_process_that_cannot_start_later_is_tried_again(shop: User) -> None:
    enqueue(shop, "in_a_thread.enqueue()")
    with shop.running("worker", "shop:app", "-p", "1") as worker:
        noted(shop, "thread", 1, worker)
        down = Path(shop.write("down", ""))
        enqueue(shop, "die.enqueue()")
        worker.wait_for("lifespan failed")
        assert worker.process.poll() is None
        down.unlink()
        enqueue(shop, "in_a_thread.enqueue()")
        noted(shop, "thread", 2, worker)


def test_an_isolated_process_that_cannot_start_fails_its_attempt_and_is_tried_again(shop: User) -> None:
    enqueue(shop, "in_a_thread.enqueue()")
    with shop.running("worker", "shop:app", "-p", "1") as worker:
        noted(shop, "thread", 1, worker)
        down = Path(shop.write("down", ""))
        enqueue(shop, "in_a_process.enqueue()")
        worker.wait_for("retry scheduled")
        down.unlink()
        noted(shop, "process", 1, worker)
    retried = next(one for one in entries(worker) if one["event"] == "retry scheduled")
    assert retried["errorType"] == "ConnectionRefusedError"
    assert "async with SmtpPool() as pool:" in retried["traceback"]


def test_one_that_hangs_when_it_is_left_is_given_up(shop: User) -> None:
    shop.write("hang", "")
    enqueue(shop, "in_a_thread.enqueue()")
    with shop.running("worker", "shop:app", "-p", "1", "--grace", "1s") as worker:
        noted(shop, "thread", 1, worker)
        assert worker.stop() == 0
    stopped = next(one for one in entries(worker) if one["event"] == "lifespan did not stop")
    assert "await asyncio.sleep(600)" in stopped["traceback"]
    assert stopped["errorReason"] == "it did not stop within 2 s"


def test_a_worker_can_be_stopped_while_it_starts(shop: User) -> None:
    slow = SHOP.replace('note("open")', 'note("opening")\n        await asyncio.sleep(600)')
    shop.write("shop.py", slow)
    with shop.running("worker", "shop:app", "-p", "1") as worker:
        noted(shop, "opening", 1, worker)
        assert worker.stop() == 0
    assert "lifespan failed" not in worker.output


def test_a_web_process_is_told_how_to_enter_it(shop: User) -> None:
    done = shop.python("-c", "import shop; shop.app.resource(shop.SmtpPool)")
    assert "ResourceUnavailable: the lifespans of this app have not been entered in this process" in done.stderr
    assert "async with app.lifespan_context():" in done.stderr
    program = """
import asyncio, shop
async def main():
    async with shop.app.lifespan_context():
        print(shop.app.resource(shop.SmtpPool).is_open)
asyncio.run(main())
"""
    assert shop.python("-c", program).stdout == "True\n"
