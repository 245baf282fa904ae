"""A terminal: runs what a person types there, and shows what is printed."""

import os
import pty
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from reprieve.clock import ticks
from tests.first_day.user import PATIENCE, User

_CODES = re.compile(r"\x1b\[[\d;]*m")


class Terminal:
    """A window in the user's folder."""

    def __init__(self, user: User) -> None:
        self._user = user
        self._printed = bytearray()
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def screen(self) -> str:
        """Everything that was printed here, as it is read: without the codes for bold and dim."""
        return _CODES.sub("", self._printed.decode().replace("\r\n", "\n"))

    def type(self, line: str) -> subprocess.Popen[bytes]:
        """Start a command, `python …` or `reprieve …`."""
        name, *words = line.partition("#")[0].split()
        commands = {"python": sys.executable, "reprieve": self._user.command()[0]}
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            [commands[name], *words],
            cwd=self._user.folder,
            env=self._user.environ(NO_COLOR="1"),
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self._processes.append(process)
        threading.Thread(target=self._read, args=(ours,), daemon=True).start()
        return process

    def wait_for(self, expected: str) -> None:
        """Wait until the screen shows these lines in this order, in which … stands for anything."""
        deadline = ticks() + PATIENCE
        while not self.shows(expected):
            assert ticks() < deadline, f"no {expected!r} on the screen:\n{self.screen}"
            threading.Event().wait(0.05)

    def shows(self, expected: str) -> bool:
        """Return whether the screen shows these lines in this order, in which … stands for anything."""
        pattern = ".*".join(re.escape(line).replace("…", ".*?") for line in expected.splitlines())
        return re.search(pattern, self.screen, re.DOTALL) is not None

    def close(self) -> None:
        """Kill what is still running."""
        for process in self._processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _read(self, file: int) -> None:
        # The last process that could write here has ended when reading fails.
        with suppress(OSError):
            while data := os.read(file, 65_536):
                self._printed += data
        os.close(file)


@contextmanager
def terminal_of(user: User) -> Iterator[Terminal]:
    """Open a terminal; in the end, nothing that was started there is left."""
    terminal = Terminal(user)
    try:
        yield terminal
    finally:
        terminal.close()
