"""A new user: an empty folder, the built wheel, the commands of the README, and processes that end with the test."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from reprieve.clock import ticks

PATIENCE = 30.0
"""Seconds after which something that should happen counts as not happening."""


class Done(NamedTuple):
    """A command that has ended."""

    status: int
    stdout: str
    stderr: str

    @property
    def document(self) -> Any:  # noqa: ANN401 - whatever JSON holds
        """The one JSON document that it printed."""
        return json.loads(self.stdout)


class Program:
    """A command that goes on."""

    def __init__(self, process: subprocess.Popen[str], output: Path) -> None:
        self.process = process
        self._output = output

    @property
    def output(self) -> str:
        """What it has printed so far, on either stream."""
        return self._output.read_text()

    def wait_for(self, text: str, *, seconds: float = PATIENCE) -> str:
        """Wait until it has printed this; return all that it has printed."""
        deadline = ticks() + seconds
        while text not in self.output:
            assert self.process.poll() is None, f"it ended without {text!r}:\n{self.output}"
            assert ticks() < deadline, f"no {text!r} within {seconds:g} s:\n{self.output}"
            threading.Event().wait(0.05)
        return self.output

    def stop(self) -> int:
        """End it as Ctrl-C does; return its exit status."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(PATIENCE)

    def kill(self) -> None:
        """Kill it and everything that it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class User:
    """A person in an empty folder, with the wheel installed and nothing else of this project in reach."""

    def __init__(self, folder: Path, site: Path) -> None:
        self.folder = folder
        self.site = site

    def write(self, name: str, text: str) -> Path:
        """Save a file."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def python(self, *words: str, **environ: str) -> Done:
        """Run `python …` to its end."""
        return self._run([sys.executable, *words], environ)

    def reprieve(self, *words: str, **environ: str) -> Done:
        """Run `reprieve …` to its end, as the console script that the wheel installs."""
        return self._run(self.command(*words), environ)

    def command(self, *words: str) -> list[str]:
        """Return the command line of `reprieve …`."""
        return [str(self.site / "bin" / "reprieve"), *words]

    @contextmanager
    def running(self, *words: str, **environ: str) -> Iterator[Program]:
        """Run `reprieve …` for as long as the block lasts."""
        output = self.folder.parent / f"{self.folder.name}-{words[0]}-{ticks():.6f}.log"
        with output.open("w") as file:
            process = subprocess.Popen(
                self.command(*words),
                cwd=self.folder,
                env=self.environ(**environ),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
        program = Program(process, output)
        try:
            yield program
        finally:
            program.kill()

    def _run(self, command: list[str], environ: dict[str, str]) -> Done:
        done = subprocess.run(
            command,
            check=False,
            cwd=self.folder,
            env=self.environ(**environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=2 * PATIENCE,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def environ(self, **environ: str) -> dict[str, str]:
        """Return the environment of a new user: the wheel first, and no settings of this machine."""
        unwanted = re.compile(r"REPRIEVE_|PYTEST|COV_|(NO_COLOR|FORCE_COLOR|TTY_COMPATIBLE|PYTHONPATH|COLUMNS|CI)$")
        kept = {name: value for name, value in os.environ.items() if not unwanted.match(name)}
        return kept | {"PYTHONPATH": str(self.site), "COLUMNS": "80"} | environ
