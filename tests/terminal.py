"""A pseudo-terminal: runs commands as a person does, and keeps what they print."""

import os
import pty
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from reprieve.clock import ticks

PATIENCE = 60.0
"""Seconds after which something that should happen counts as not happening."""

STYLE = re.compile(r"\x1b\[[0-9;]*m")


class Terminal:
    """A terminal in a folder. Commands that still run are killed when it is closed."""

    def __init__(self, folder: Path | None = None, environ: Mapping[str, str] | None = None) -> None:
        self._folder = folder
        self._environ = os.environ if environ is None else environ
        self._printed = bytearray()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._readers: list[threading.Thread] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        for reader in self._readers:
            reader.join()

    @property
    def text(self) -> str:
        """Everything that was printed here, with the codes for colours."""
        return self._printed.decode().replace("\r\n", "\n")

    @property
    def screen(self) -> str:
        """Everything that was printed here, without colours."""
        return STYLE.sub("", self.text)

    def start(self, command: Sequence[str], *, stderr: int | None = None) -> subprocess.Popen[bytes]:
        """Start a command; its standard error is the terminal as well unless told otherwise."""
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            command,
            cwd=self._folder,
            env=self._environ,
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs if stderr is None else stderr,
            start_new_session=True,
        )
        os.close(theirs)
        self._processes.append(process)
        self._readers.append(threading.Thread(target=self._read, args=(ours,)))
        self._readers[-1].start()
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

    def _read(self, file: int) -> None:
        # Reading fails when the last process that could write here has ended.
        with suppress(OSError):
            while data := os.read(file, 65_536):
                self._printed += data
        os.close(file)


def on_terminal(*arguments: str, columns: int = 80, colours: bool = False) -> str:
    """Run `reprieve …` on a terminal; return what it prints."""
    return run([sys.executable, "-m", "reprieve", *arguments], columns=columns, colours=colours)


def run(
    command: Sequence[str], *, columns: int = 80, colours: bool = False, environ: Mapping[str, str] | None = None
) -> str:
    """Run a command whose standard output is a terminal; return what it prints."""
    wanted = {**(os.environ if environ is None else environ), "TERM": "xterm-256color", "COLUMNS": str(columns)}
    with Terminal(environ=wanted) as terminal:
        process = terminal.start(command, stderr=subprocess.PIPE)
        _, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, errors.decode()
    return terminal.text if colours else terminal.screen
