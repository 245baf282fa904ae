"""Ends a server with the tests that started it, even if these are killed: `python -m tests.servers.guard folder`.

The process that started it holds the other end of its standard input, which the system closes when that process
ends.
"""

import os
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Self

from tests.servers.program import PATIENCE

ROOT = Path(__file__).parents[2]

_END = {"postmaster.pid": signal.SIGQUIT}
"""PostgreSQL takes its children with it when it is told to quit. Others ignore that if their parent did, as a shell's
jobs in the background do."""


class Guard:
    """Removes a folder when it is let go, and ends first the servers that have left their numbers in it."""

    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.servers.guard", folder],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=2 * PATIENCE)


def end(folder: Path) -> None:
    """End the servers of a folder, and remove the folder."""
    for file in (*folder.glob("*.pid"), *folder.glob("*/*.pid")):
        number = int(file.read_text().split()[0])
        with suppress(ProcessLookupError):
            os.kill(number, _END.get(file.name, signal.SIGKILL))
            for _ in range(round(PATIENCE / 0.01)):
                if not file.exists():
                    break
                os.kill(number, 0)
                threading.Event().wait(0.01)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.stdin.read()
    end(Path(sys.argv[1]))
