"""Fleets of workers in processes of their own: started, watched, hurt and in the end always killed, each by its id."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from inspect import isawaitable
from itertools import count
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, overload

import msgspec
import pytest

from reprieve import Job, Reprieve, Task
from reprieve.call import Call
from reprieve.clock import ticks
from reprieve.config import Settings
from reprieve.core.record import Record
from reprieve.stores.protocol import Filter
from reprieve.worker import recovery
from reprieve.worker.configuration import WorkerConfiguration
from reprieve.worker.logs import Logs
from tests.flows import workload
from tests.flows.ground import Ground, Grounds
from tests.flows.workload import Line

ROOT = Path(__file__).parents[2]
SOON = 3.0
"""Seconds for what takes one on a machine that has nothing else to do."""

PATIENCE = 30.0
"""Seconds after which something that should happen counts as not happening."""

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")


class Terms(Record):
    """How often the living beat, how soon the silent are dead, and how often all of it is played."""

    lease: float
    heartbeat: float
    times: int
    at_once: int = 1

    @property
    def is_default(self) -> bool:
        return self.lease == Settings().lease


ONCE = Terms(lease=2.0, heartbeat=0.5, times=1)
OFTEN = Terms(lease=15.0, heartbeat=5.0, times=int(os.environ.get("REPRIEVE_FAULTS_TIMES", "20")), at_once=4)


class Tree:
    """A supervisor and its children."""

    def __init__(
        self,
        configuration: WorkerConfiguration,
        environ: dict[str, str],
        output: Path,
        lines: Callable[[], list[Line]],
        prefix: Sequence[str] = (),
    ) -> None:
        self.output = output
        self._lines = lines
        with output.open("w") as file:
            self._process = subprocess.Popen(
                [*prefix, sys.executable, "-m", "tests.flows.worker", msgspec.json.encode(configuration).decode()],
                cwd=ROOT,
                env=os.environ | environ,
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        self.pid = self._process.pid

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the supervisor alone."""
        self._process.send_signal(number)

    def send_all(self, number: signal.Signals) -> None:
        """Send a signal to the supervisor and all its children: it leads a process group of its own."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def send_each(self, number: signal.Signals) -> list[int]:
        """Send a signal to every process under the supervisor and then to itself, isolated ones too; return which."""
        everyone = [*descendants(self.pid), self.pid]
        for pid in everyone:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        return everyone

    def status(self) -> int | None:
        """Return the exit status of the supervisor; None while it lives."""
        return self._process.poll()

    def children(self) -> list[int]:
        """Return the children that live, in the order in which they came."""
        arrived = [line.pid for line in self._lines() if line.what == "arrived" and line.parent == self.pid]
        return [pid for pid in arrived if is_alive(pid)]

    def said(self, event: str) -> list[dict[str, Any]]:
        """Return what the tree has logged under this name."""
        return [entry for entry in self._entries() if entry.get("event") == event]

    def _entries(self) -> list[dict[str, Any]]:
        entries = []
        for line in self.output.read_text().splitlines():
            with suppress(json.JSONDecodeError):
                entries.append(json.loads(line))
        return entries

    def end(self) -> None:
        """Kill the supervisor and all its children."""
        self.send_all(signal.SIGKILL)
        self._process.communicate()


def is_alive(pid: int) -> bool:
    """Whether a process lives; one that has ended and whose status is not read yet does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):  # gone between opening and reading
        return not Path("/proc/self").exists()


def descendants(pid: int) -> list[int]:
    """Return the processes that a process has started, and those that they have started, the youngest first."""
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], check=True, capture_output=True, text=True).stdout
    children: dict[int, list[int]] = {}
    for child, parent in (map(int, line.split()) for line in listed.splitlines()):
        children.setdefault(parent, []).append(child)
    found = [pid]
    for one in found:
        found += children.get(one, [])
    return found[:0:-1]


class Stage:
    """One store, the workers on it, and everything that they did."""

    def __init__(self, folder: Path, terms: Terms, ground: Ground) -> None:
        self.terms = terms
        self.folder = folder
        self.ground = ground
        self.log = folder / "log"
        self.log.touch()
        self._numbers = count()
        self._trees: list[Tree] = []
        self._read = 0
        self._lines: list[Line] = []
        self.app = self.open_app()

    def open_app(self, settings: Settings | None = None, outbox: str = "") -> Reprieve:
        """Make an app on this store that knows every task, as another process would have one."""
        app = Reprieve(self.ground.url, outbox=outbox, settings=settings or Settings())
        for declaration in workload.app.registry:
            app.registry.add(declaration)
        return app

    # workers

    def hire(
        self,
        *,
        environ: dict[str, str] | None = None,
        prefix: Sequence[str] = (),
        **changes: Any,  # noqa: ANN401 - any field of the configuration
    ) -> Tree:
        """Start a worker; the prefix is a command that runs it."""
        defaults: dict[str, Any] = {
            "target": "tests.flows.workload:app",
            "url": self.ground.url,
            "processes": 1,
            "slots": 4,
            "queues": ("default",),
            "grace": 20.0,
            "lease": self.terms.lease,
            "heartbeat": self.terms.heartbeat,
            "logs": Logs(level="debug", style="json"),
        }
        configuration = WorkerConfiguration(**defaults | changes)
        variables = {
            "REPRIEVE_URL": configuration.url,
            "REPRIEVE_LEASE": str(configuration.lease),
            "REPRIEVE_HEARTBEAT": str(configuration.heartbeat),
            workload.LOG: str(self.log),
        }
        output = self.folder / f"worker-{next(self._numbers)}"
        tree = Tree(configuration, variables | (environ or {}), output, self.lines, prefix)
        self._trees.append(tree)
        return tree

    async def freeze(self, send: Callable[[signal.Signals], None]) -> None:
        """Stop the processes that a signal reaches, when none of them holds the store: all others would wait."""
        while True:
            send(signal.SIGSTOP)
            if await asyncio.to_thread(self.ground.is_free):
                return
            send(signal.SIGCONT)
            await asyncio.sleep(0.01)

    async def close(self) -> None:
        for tree in self._trees:
            tree.end()
        await self.app.aclose()

    # jobs

    async def enqueue(self, *calls: Call[object]) -> list[str]:
        return [handle.id for handle in await self.app.aenqueue_many(calls)]

    async def enqueue_one(self, call: Call[object]) -> str:
        (job_id,) = await self.enqueue(call)
        return job_id

    async def job(self, job_id: str) -> Job:
        return await self.app.job(job_id).afetch()

    async def jobs(self, ids: Sequence[str]) -> list[Job]:
        """Return jobs as they are, in this order; those that are gone are left out."""
        found: dict[str, Job] = {}
        for first in range(0, len(ids), 100):
            page = await self.app.store.find(Filter(ids=tuple(ids[first : first + 100])), self.app.clock.now())
            found |= {job.id: job for job in page.jobs}
        return [found[name] for name in ids if name in found]

    async def ended(self, *ids: str, within: float = PATIENCE) -> list[Job]:
        """Wait until these jobs have ended, whichever way; answer them."""

        async def all_ended() -> list[Job]:
            jobs = await self.jobs(ids)
            return [] if any(job.state in ("waiting", "running") for job in jobs) else jobs

        return await self.until(all_ended, "the jobs have ended", within)

    async def succeeded(self, *ids: str, within: float = PATIENCE) -> list[Job]:
        """Wait until these jobs have ended, all of them well; answer them."""
        jobs = await self.ended(*ids, within=within)
        assert [(job.id, job.death, job.cause) for job in jobs if job.state != "succeeded"] == []
        assert len(jobs) == len(ids)
        return jobs

    def mark(self, name: str) -> str:
        """Return the name of a file that a task can wait for."""
        return str(self.folder / name)

    def release(self, name: str) -> None:
        """Make a file that tasks wait for."""
        Path(self.mark(name)).touch()

    # what happened

    def figure(self, what: str, seconds: float, at_most: float | None = None) -> None:
        """Print how long something took; check the upper bound in `make faults` only."""
        print(f"{what}: {seconds:.2f} s")  # noqa: T201 - the figures of these tests
        if at_most is not None and self.terms.is_default:
            assert seconds < at_most, what

    def lines(self) -> list[Line]:
        """Return every line of the log; one that is being written is left for the next time."""
        with self.log.open("rb") as file:
            file.seek(self._read)
            whole = file.read().rpartition(b"\n")[0]
        if whole:
            self._read += len(whole) + 1
            self._lines += [msgspec.json.decode(line, type=Line) for line in whole.split(b"\n")]
        return self._lines

    def began(self, *ids: str) -> list[Line]:
        """Return the starts of attempts: of these jobs, or of all."""
        return [line for line in self.lines() if line.what == "began" and (not ids or line.job in ids)]

    def finished(self, *ids: str) -> list[Line]:
        """Return the ends of attempts: of these jobs, or of all."""
        return [line for line in self.lines() if line.what == "ended" and (not ids or line.job in ids)]

    async def running(self, *ids: str, attempt: int = 1, within: float = PATIENCE) -> list[Line]:
        """Wait until these jobs have begun this attempt, or a later one; answer how."""

        def all_begun() -> list[Line]:
            lines = [line for line in self.began(*ids) if line.attempt >= attempt]
            return lines if {line.job for line in lines} == set(ids) else []

        return await self.until(all_begun, f"attempt {attempt} of the jobs has begun", within)

    @overload
    async def until(
        self, condition: Callable[[], Awaitable[T]], what: str, within: float = ..., every: float = ...
    ) -> T: ...

    @overload
    async def until(self, condition: Callable[[], T], what: str, within: float = ..., every: float = ...) -> T: ...

    async def until(
        self, condition: Callable[[], Any], what: str, within: float = PATIENCE, every: float = 0.02
    ) -> Any:
        """Wait until a condition holds, and answer what it answers."""
        deadline = ticks() + within
        while True:
            found = condition()
            if isawaitable(found):
                found = await found
            if found:
                return found
            if ticks() > deadline:
                pytest.fail(f"not within {within:g} s: {what}\n{self.story()}")
            await asyncio.sleep(every)

    async def let_pass(self, seconds: float) -> None:
        """Let time pass in which something must not happen."""
        await asyncio.sleep(seconds)

    async def let_the_dead_be_buried(self) -> None:
        """Wait until sessions that are taken for dead have been expired."""
        await self.let_pass(self.terms.heartbeat + 2 * recovery.RECOVERY_INTERVAL_SECONDS + 0.5)

    def story(self) -> str:
        """Return what happened, to find out why a test failed."""
        lines = [
            f"{line.at:.3f} {line.pid} {line.what} {line.task[-20:]} {line.job[-6:]} {line.attempt} {line.how}"
            for line in self.lines()[-60:]
        ]
        outputs = [
            f"--- {tree.output.name} ({tree.status()})\n{tree.output.read_text()[-4_000:]}" for tree in self._trees
        ]
        return "\n".join((*lines, *outputs))


async def play(scene: Callable[[Stage], Awaitable[None]], folder: Path, terms: Terms, grounds: Grounds) -> None:
    """Play a scene as often as the terms say, each time on a stage of its own, a few at once."""
    room = asyncio.Semaphore(terms.at_once)

    async def perform(number: int) -> None:
        async with room:
            place = folder / str(number)
            place.mkdir()
            with grounds(place) as ground:
                stage = Stage(place, terms, ground)
                try:
                    await scene(stage)
                except AssertionError as error:
                    error.add_note(stage.story())
                    raise
                finally:
                    await stage.close()

    if terms.times == 1:
        await perform(0)
        return
    async with asyncio.TaskGroup() as group:
        for number in range(terms.times):
            group.create_task(perform(number))


on_all_terms = pytest.mark.parametrize(
    "terms", [pytest.param(ONCE, id="once"), pytest.param(OFTEN, id="often", marks=pytest.mark.faults)]
)
"""Runs a test once with a short lease, and for `make faults` `REPRIEVE_FAULTS_TIMES` times, or 20, at the defaults."""


def flow(scene: Callable[[Stage], Awaitable[None]]) -> Callable[[Path, Terms, Grounds], Awaitable[None]]:
    """Make a test of a scene, on all terms and on every store."""

    @on_all_terms
    async def test(tmp_path: Path, terms: Terms, grounds: Grounds) -> None:
        await play(scene, tmp_path, terms, grounds)

    test.__name__ = test.__qualname__ = scene.__name__
    test.__module__ = scene.__module__
    return test


def calls(task: Task[P, R], times: int, *args: P.args, **kwargs: P.kwargs) -> list[Call[R]]:
    """Return the same call, so many times."""
    return [task.call(*args, **kwargs) for _ in range(times)]
