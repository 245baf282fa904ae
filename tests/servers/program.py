"""The server programs that the tests start: where each is found, and how long it may take to be ready.

`tests.servers.install` brings those that are missing.
"""

import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PATIENCE = 30.0
"""Seconds for which a server may take to start, and to stop."""


class ServerMissing(Exception):
    """There is no server to test with."""


@dataclass(frozen=True)
class Program:
    """A program by one of its names."""

    title: str
    package: str
    """The package that brings it, as Debian names it; the package's service has the same name."""
    names: tuple[str, ...]
    places: str = "/usr/sbin"
    """A pattern of folders to look in beside the PATH."""

    def path(self) -> Path | None:
        """Return where the program is: on the PATH, or else in its places, the newest version first."""
        path = os.pathsep.join((os.environ.get("PATH", ""), *_newest_first(self.places)))
        found = next(filter(None, (shutil.which(name, path=path) for name in self.names)), None)
        return None if found is None else Path(found)


POSTGRESQL: Final = Program("PostgreSQL", "postgresql", ("initdb",), "/usr/lib/postgresql/*/bin")
REDIS: Final = Program("Redis", "redis-server", ("redis-server", "valkey-server"))
PGBOUNCER: Final = Program("PgBouncer", "pgbouncer", ("pgbouncer",))
PROGRAMS: Final = (POSTGRESQL, REDIS, PGBOUNCER)
"""Everything that `make test` needs beside Python."""


def find(program: Program) -> Path:
    """Return where a program is; raise ServerMissing when it is not installed."""
    found = program.path()
    if found is None:
        message = f"{program.title} is not installed ({program.names[0]} was not found); run: make servers"
        raise ServerMissing(message)
    return found


def _newest_first(places: str) -> list[str]:
    found = [str(place) for place in Path("/").glob(places.lstrip("/"))]
    return sorted(found, key=lambda place: [int(part) for part in re.findall(r"\d+", place)], reverse=True)


def wait_until_ready(answers: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until a server answers: it says when it is ready only to its log."""
    deadline = time.monotonic() + PATIENCE
    while True:
        if process.poll() is not None or time.monotonic() > deadline:
            raise ServerMissing(log.read_text())
        if answers():
            return
        threading.Event().wait(0.02)
