"""The app that the fleets of these tests run. Every process that loads it, and every attempt, leaves lines in a log.

A line is one write at the end of the file, so it outlives its process, and lines of different processes never mix.
Moments are those of the monotonic clock, which all processes of a machine share.
"""

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from reprieve import Fail, Policy, Reprieve, Retry, clock, current_job
from reprieve.backoff import fixed
from reprieve.context import Running
from reprieve.core.record import Record
from reprieve.worker.middleware import Proceed

LOG, CLOCK = "FLOWS_LOG", "FLOWS_CLOCK"
"""Variables that name the log, and the file that says by how many milliseconds the clock is wrong."""


class Line(Record):
    """Something that a process did."""

    what: str
    """`arrived`: a process loaded this module. `began` and `ended`: an attempt did. `saw`: a task says something."""
    at: float
    pid: int
    parent: int
    job: str = ""
    attempt: int = 0
    task: str = ""
    tenant: str = ""
    leased_at: int = 0
    how: str = ""
    """How an attempt ended: the name of what it raised, or nothing."""


def write(what: str, running: Running | None = None, how: str = "") -> None:
    if LOG not in os.environ:
        return
    line = Line(
        what=what,
        at=clock.ticks(),
        pid=os.getpid(),
        parent=os.getppid(),
        job="" if running is None else running.id,
        attempt=0 if running is None else running.attempt,
        task="" if running is None else running.job.task,
        tenant="" if running is None else running.tenant,
        leased_at=0 if running is None else running.job.leased_at or 0,
        how=how,
    )
    file = os.open(os.environ[LOG], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, msgspec.json.encode(line) + b"\n")
    finally:
        os.close(file)


class WrongClock(clock.SystemClock):
    """The clock of a machine that is wrong by as much as a file says, from one moment to the next."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def now(self) -> int:
        return super().now() + self._error()

    def next(self) -> int:
        return super().next() + self._error()

    def _error(self) -> int:
        return int(self._path.read_text())


def _be_wrong(path: Path) -> None:
    """Make this machine's time of day wrong by as many milliseconds as a file says, for this process alone."""
    right = time.time_ns  # noqa: TID251 - what the clock asks
    time.time_ns = lambda: right() + int(path.read_text()) * 1_000_000  # noqa: TID251 - as above


if CLOCK in os.environ:
    _be_wrong(Path(os.environ[CLOCK]))


async def note(running: Running, proceed: Proceed) -> object:
    write("began", running)
    try:
        value = await proceed()
    except BaseException as error:
        write("ended", running, type(error).__name__)
        raise
    write("ended", running)
    return value


app = Reprieve(policy=Policy(backoff=fixed("200ms")))
app.middleware.append(note)
write("arrived")


async def _marked(path: str) -> None:
    while not os.path.exists(path):  # noqa: ASYNC110, ASYNC240, PTH110 - a file is how the test speaks to another process
        await asyncio.sleep(0.02)


def _rest(seconds: float) -> None:
    """Block this thread, and let others run."""
    threading.Event().wait(seconds)


@app.task(events=True)
async def tell() -> None:
    """Succeed, and leave an event of every step."""


@app.task(events=True)
async def tell_and_stay(path: str) -> None:
    """Leave an event of every step, and end as soon as there is a file of this name."""
    await _marked(path)


@app.task
async def nap(seconds: float = 0.0) -> None:
    """Take so long."""
    await asyncio.sleep(seconds)


@app.task
async def stay(path: str) -> None:
    """End as soon as there is a file of this name."""
    await _marked(path)


@app.task
async def first_stay(path: str, error: str, then: str = "") -> None:
    """In the first attempt stay, and fail if an error is named; in the second stay for another file, if any."""
    if current_job().attempt == 1:
        await _marked(path)
        if error:
            raise RuntimeError(error)
    elif then:
        await _marked(then)


@app.task
def doze(seconds: float) -> None:
    """Take so long in a thread, and ignore that it should stop."""
    _rest(seconds)


@app.task
def doze_lightly(seconds: float) -> None:
    """Take so long in a thread, and stop as soon as that is wanted."""
    until = clock.ticks() + seconds
    while clock.ticks() < until and not current_job().is_stopping:
        _rest(0.02)


@app.task(executor="process")
def toil(seconds: float) -> None:
    """Take so long in a process."""
    _rest(seconds)


@app.task(executor="process")
async def stay_apart(path: str) -> None:
    """End as soon as there is a file of this name, in a process."""
    await _marked(path)


@app.task(executor="process")
def terminate_program() -> None:
    """Start a program, and end it with SIGTERM."""
    with subprocess.Popen(["sleep", "600"]) as program:
        program.terminate()
        if (status := program.wait(10)) != -signal.SIGTERM:
            raise Fail(str(status))


@app.task
async def fail_once(after: float | None = None) -> None:
    """Fail in the first attempt: for good, or until so many seconds have passed."""
    if current_job().attempt == 1:
        raise Fail("no such account") if after is None else Retry(after=after)


@app.task
async def die() -> None:
    """Take the process down."""
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(executor="process")
def die_apart() -> None:
    """Take the process down, which runs no other job."""
    os.kill(os.getpid(), signal.SIGKILL)


async def _exit() -> None:
    sys.exit(3)


def _leave_behind() -> None:
    """Leave an asyncio task behind that exits."""
    _LEFT.append(asyncio.ensure_future(_exit()))


def _cancel_others() -> None:
    for other in asyncio.all_tasks() - {asyncio.current_task()}:
        other.cancel()


_LEFT: list[asyncio.Future[None]] = []

ENDS: dict[str, Callable[[], object]] = {
    "exit in a background task": _leave_behind,
    "stop the event loop": lambda: asyncio.get_running_loop().stop(),
    "cancel all other tasks": _cancel_others,
    "exit without a word": lambda: os._exit(3),
    "read from nowhere": lambda: ctypes.string_at(0),
}
"""Ways in which a job ends its process."""


@app.task
async def end_process(how: str, seconds: float) -> None:
    """End the process in some way, at once or while this task still runs."""
    ENDS[how]()
    if seconds:
        await asyncio.sleep(seconds)


# What no code should raise: each ends its job at once, and leaves its slot to the next one.


class OutOfBounds(BaseException):
    """Be no exception that code is expected to catch."""


ERRORS = {
    error.__name__: error
    for error in (StopIteration, GeneratorExit, SystemExit, KeyboardInterrupt, asyncio.CancelledError, OutOfBounds)
}
ONCE = Policy(max_attempts=1)


@app.task(policy=ONCE)
async def throw(name: str) -> None:
    raise ERRORS[name]


@app.task(policy=ONCE)
def throw_in_a_thread(name: str) -> None:
    raise ERRORS[name]


@app.task(policy=ONCE, executor="process")
def throw_in_a_process(name: str) -> None:
    raise ERRORS[name]


def _exit_instead(failures: int) -> float:
    raise SystemExit(failures)


@app.task(policy=Policy(max_attempts=2, backoff=_exit_instead))
async def fail_under_a_backoff_that_exits() -> None:
    if current_job().attempt == 1:
        raise ConnectionError


@app.task(policy=ONCE)
async def close_app(how: str) -> None:
    """Close the app that runs this job."""
    match how:
        case "with":
            with app:
                write("saw", current_job(), "open")
        case "async with":
            async with app:
                write("saw", current_job(), "open")
        case "close":
            app.close()
        case _:
            await app.aclose()


@app.task(policy=ONCE)
def close_app_in_a_thread() -> None:
    with app:
        write("saw", current_job(), "open")


@app.task
async def fork() -> None:
    """Return twice: in this process and in a fork of it."""
    write("saw", current_job(), str(os.fork() or os.getpid()))


@app.task
def fork_in_a_thread() -> None:
    write("saw", current_job(), str(os.fork() or os.getpid()))


@app.task(executor="process")
async def fork_in_a_process() -> None:
    """Await something in both processes."""
    write("saw", current_job(), str(os.fork() or os.getpid()))
    await asyncio.sleep(0.1)


@app.task
def fork_and_terminate() -> None:
    """End a fork of this process as `multiprocessing` does."""
    pid = os.fork()
    if not pid:
        _rest(FAR_TOO_LONG)
    os.kill(pid, signal.SIGTERM)
    os.waitpid(pid, 0)


@app.task
async def add(left: int, right: int) -> None:
    """Take two numbers, and nothing else."""


# What must be stopped: in its first attempt each goes on for much longer than it may, in its second it ends at once.

LIMIT = 1.0
FAR_TOO_LONG = 60.0


def _seconds() -> float:
    return FAR_TOO_LONG if current_job().attempt == 1 else 0.0


@app.task(timeout=LIMIT)
async def overrun_asleep() -> None:
    await asyncio.sleep(_seconds())


@app.task(timeout=LIMIT)
def overrun_in_a_thread() -> None:
    _rest(_seconds())


@app.task(timeout=4 * LIMIT, executor="process")
def overrun_in_a_process() -> None:
    """Take longer than the start of a process, which counts."""
    _rest(_seconds())


@app.task(timeout=LIMIT)
async def overrun_on_the_loop() -> None:
    _rest(_seconds())


@app.task(timeout=LIMIT)
def overrun_with_the_interpreter() -> None:
    """Sleep in native code that does not let go of the interpreter: no other thread of the process runs."""
    ctypes.PyDLL(None).sleep(int(_seconds()))


@app.task(dependency="relay", queue="relay")
async def relay(port: int) -> None:
    """Call a server that may not be there."""
    write("saw", current_job(), "call")
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.close()


@app.task(dependency="relay", queue="relay")
async def ask(port: int) -> None:
    """Call a server, and give it a moment to answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        async with asyncio.timeout(0.1):
            await reader.read(1)
    finally:
        writer.close()
