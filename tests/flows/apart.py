"""Tasks that run in processes of their own, and what they do to those. The app names a store that must not be used."""

import json
import os
import signal
import subprocess
import sys
import threading
from contextvars import copy_context

from reprieve import Policy, Reprieve, current_job
from reprieve.backoff import fixed
from reprieve.config import Settings

FAR_TOO_LONG = 600
"""Seconds, more than any test takes."""

app = Reprieve("sqlite:///unused.db", settings=Settings(), policy=Policy(backoff=fixed("200ms")))


@app.task
async def follow_up() -> None:
    """Follow another job."""


@app.task(executor="process")
def begin() -> None:
    """Enqueue another job."""
    follow_up.enqueue()


def _send() -> None:
    """Be a task under another name than the function's."""


send = app.task(executor="process")(_send)


class Desk:
    """A place for tasks that is no module."""

    @staticmethod
    @app.task(executor="process")
    def sign() -> None:
        """Be a task inside a class."""


@app.task(executor="process", result_ttl="1h")
def where() -> int:
    """Return the process."""
    current_job().progress("here")
    return os.getpid()


@app.task(executor="process")
def misread() -> None:
    """Fail in a library."""
    json.loads("{")


@app.task(executor="process")
def chatter(times: int) -> None:
    """Report progress from two threads, more than a socket takes at once."""

    def say(number: int) -> None:
        for _ in range(times):
            current_job().progress(str(number) * 200_000)

    threads = [threading.Thread(target=copy_context().run, args=(say, number)) for number in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@app.task(executor="process")
def leave(status: int) -> None:
    """Exit as a script would."""
    sys.exit(status)


@app.task(executor="process")
async def press_a_key() -> None:
    """Raise what no code should catch."""
    raise KeyboardInterrupt


@app.task(executor="process")
def die() -> None:
    """Take the process down."""
    os.kill(os.getpid(), signal.SIGKILL)


def _name(path: str) -> None:
    """Write down which process this is."""
    with open(path, "w") as file:  # noqa: PTH123 - as little as possible between a fork and its end
        file.write(str(os.getpid()))


def _fork(path: str) -> None:
    """Leave a child behind that never ends by itself."""
    if os.fork() == 0:
        _name(path)
        threading.Event().wait(FAR_TOO_LONG)
        os._exit(0)


@app.task(executor="process")
def fork_and_die(path: str) -> None:
    """Take the process down and leave a child of it behind."""
    _fork(path)
    while not (os.path.exists(path) and os.path.getsize(path)):  # noqa: PTH110, PTH202 - as above
        threading.Event().wait(0.01)
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(executor="process")
def spawn_and_die() -> None:
    """Take the process down and leave a program behind that was given everything that it had open."""
    subprocess.Popen(
        [sys.executable, "-c", f"import threading; threading.Event().wait({FAR_TOO_LONG})"], close_fds=False
    )
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(executor="process")
def fork_and_stay(path: str, child: str) -> None:
    """Leave a child behind, and never end."""
    _fork(child)
    _name(path)
    threading.Event().wait(FAR_TOO_LONG)
