"""Isolation: attempts in processes of their own, which may do to those whatever they like."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from reprieve import Job, Reprieve, Task
from reprieve.config import Settings
from reprieve.context import Running
from reprieve.core.ids import make_id
from reprieve.core.outcome import Crashed, Failed, Outcome, Succeeded
from reprieve.stores.protocol import Filter
from reprieve.worker.isolation import Processes
from reprieve.worker.target import load
from tests.flows import apart
from tests.flows.fleet import PATIENCE, is_alive

TARGET = "tests.flows.apart:app"


async def gone(pid: int) -> None:
    """Wait for the end of a process."""
    async with asyncio.timeout(PATIENCE):
        while is_alive(pid):  # noqa: ASYNC110 - no event tells of the end of another process's child
            await asyncio.sleep(0.01)


class House:
    """The processes of one worker, and what their tasks say."""

    def __init__(self, processes: Processes) -> None:
        self.processes = processes
        self.said: list[bytes] = []

    async def run(self, task: Task[..., Any], *args: object) -> Outcome:
        """Run one attempt of a job."""
        call = task.call(*args)
        job = Job(id=make_id(0, 0), task=task.name, payload=call.payload, attempt=1, created_at=0, due_at=0)
        return await self.processes.run(task.declaration, Running(job, lambda _, data: self.said.append(data)))

    async def pid(self) -> int:
        """Return which process runs the next attempt."""
        outcome = await self.run(apart.where)
        assert isinstance(outcome, Succeeded)
        assert outcome.result is not None
        return int(outcome.result)


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The worker's store; the one that the app names would be made beside it."""
    monkeypatch.chdir(tmp_path)
    return f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
async def house(url: str) -> AsyncIterator[House]:
    house = House(Processes(target=TARGET, url=url))
    yield house
    await house.processes.close()


@pytest.fixture(params=[TARGET, ""], ids=["with a target", "without"])
async def either(url: str, request: pytest.FixtureRequest) -> AsyncIterator[House]:
    """Processes that load an app, and such as look for each task in its module."""
    house = House(Processes(target=request.param, url=url))
    yield house
    await house.processes.close()


async def test_jobs_that_an_isolated_process_enqueues_are_in_the_workers_store(either: House, url: str) -> None:
    assert await either.run(apart.begin) == Succeeded()
    async with Reprieve(url, settings=Settings()) as app:
        page = await app.store.find(Filter(tasks=(apart.follow_up.name,)), app.clock.now())
    assert len(page.jobs) == 1


@pytest.mark.usefixtures("url")
def test_an_app_that_is_loaded_opens_no_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", list(sys.path))
    assert load(TARGET) is apart.app
    assert list(Path().iterdir()) == []


async def test_a_task_is_found_under_whatever_name_it_has(either: House) -> None:
    assert await either.run(apart.send) == Succeeded()
    assert await either.run(apart.Desk.sign) == Succeeded()


async def test_a_task_that_is_not_there_is_told(either: House) -> None:
    with Reprieve("sqlite://:memory:", settings=Settings()) as app:

        @app.task(executor="process", name="not there")
        def missing() -> None: ...

        outcome = await either.run(missing)
    assert isinstance(outcome, Failed)
    assert outcome.verdict.code == "undecodable"
    assert "no task there is named 'not there'" in outcome.failure.message


async def test_one_process_serves_one_attempt_after_the_other(house: House) -> None:
    first = await house.pid()
    assert await house.pid() == first
    assert house.said == [b'"here"', b'"here"']
    others = await asyncio.gather(house.pid(), house.pid())
    assert len(set(others)) == 2


async def test_reports_of_two_threads_do_not_mix(house: House) -> None:
    assert await house.run(apart.chatter, 50) == Succeeded()
    assert sorted(house.said) == [b'"%s"' % (number * 200_000) for number in (b"1", b"2") for _ in range(50)]


async def test_an_exit_is_an_ordinary_failure(house: House) -> None:
    first = await house.pid()
    for outcome, name in (
        (await house.run(apart.leave, 1), "SystemExit"),
        (await house.run(apart.press_a_key), "KeyboardInterrupt"),
    ):
        assert isinstance(outcome, Failed)
        assert outcome.failure.type == name
    assert await house.pid() == first


async def test_the_death_of_an_idle_process_charges_no_job(house: House) -> None:
    first = await house.pid()
    os.kill(first, signal.SIGKILL)
    # Its end has not been heard of yet when the next job comes.
    second = await house.pid()
    os.kill(second, signal.SIGKILL)
    await gone(second)
    assert len({first, second, await house.pid()}) == 3


async def test_an_attempt_that_takes_its_process_down_has_crashed(house: House) -> None:
    assert await house.run(apart.die) == Crashed(alone=True)
    assert await house.run(apart.send) == Succeeded()


async def test_an_attempt_fails_when_no_process_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", shutil.which("true"))
    with pytest.raises(ChildProcessError, match="3 processes ended before they took the job"):
        await House(Processes()).run(apart.send)


async def written(path: Path) -> int:
    """Return the process that has written its name to a file."""
    async with asyncio.timeout(PATIENCE):
        while not (name := read(path)):  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.01)
    return int(name)


def read(path: Path) -> str:
    """Return what a file says, if it is there."""
    return path.read_text() if path.exists() else ""


async def test_the_end_of_a_process_is_heard_of_while_a_child_of_it_lives(house: House, tmp_path: Path) -> None:
    path = tmp_path / "child"
    async with asyncio.timeout(PATIENCE):
        assert await house.run(apart.fork_and_die, str(path)) == Crashed(alone=True)
    await gone(await written(path))


async def test_a_child_of_a_process_cannot_keep_it_from_being_heard(house: House, tmp_path: Path) -> None:
    async with asyncio.timeout(PATIENCE):
        assert await house.run(apart.spawn_and_die) == Crashed(alone=True)


async def test_a_cancelled_attempt_ends_with_whatever_it_has_started(house: House, tmp_path: Path) -> None:
    paths = [tmp_path / "parent", tmp_path / "child"]
    attempt = asyncio.create_task(house.run(apart.fork_and_stay, *map(str, paths)))
    pids = [await written(path) for path in paths]
    attempt.cancel()
    with pytest.raises(asyncio.CancelledError):
        await attempt
    for pid in pids:
        await gone(pid)


async def test_a_process_whose_caller_was_cancelled_is_kept_for_the_next_attempt(house: House) -> None:
    before = children()
    attempt = asyncio.create_task(house.run(apart.send))
    await asyncio.sleep(0)
    attempt.cancel()
    with pytest.raises(asyncio.CancelledError):
        await attempt
    assert await house.run(apart.send) == Succeeded()
    await house.processes.close()
    assert children() == before


async def test_few_processes_are_kept_and_not_for_long(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reprieve.worker.isolation.MAX_IDLE_PROCESSES", 1)
    monkeypatch.setattr("reprieve.worker.isolation.MAX_IDLE_SECONDS", 0.1)
    pids = await asyncio.gather(house.pid(), house.pid())
    assert len(set(pids)) == 2
    for pid in pids:
        await gone(pid)
    assert await house.run(apart.send) == Succeeded()


async def test_the_command_line_of_a_process_tells_no_secret(tmp_path: Path) -> None:
    processes = Processes(url=f"sqlite:///{tmp_path}/jobs.db?password=hush")
    pid = await House(processes).pid()
    looking = await asyncio.create_subprocess_exec("ps", "-wwo", "args=", "-p", str(pid), stdout=subprocess.PIPE)
    shown, _ = await looking.communicate()
    await processes.close()
    assert b"reprieve.worker.isolated" in shown
    assert b"hush" not in shown


def children() -> set[int]:
    """Return the processes that this one has started and that live."""
    task = Path(f"/proc/self/task/{threading.get_native_id()}/children")
    return {pid for pid in map(int, task.read_text().split()) if is_alive(pid)} if task.exists() else set()


async def test_every_failure_is_reported_with_its_full_traceback(house: House) -> None:
    # The worker may have dropped the first one: its store was away, or too many others waited to be written.
    for _ in range(2):
        failed = await house.run(apart.misread)
        assert isinstance(failed, Failed)
        assert "in JSONDecoder.raw_decode" in failed.failure.full_traceback
        assert "in JSONDecoder.raw_decode" not in failed.failure.traceback
