"""The programs of servers: found, or installed where we may, and waited for."""

import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

PATIENCE = 30.0
"""Seconds for which a server may take to start, and to stop."""


class ServerMissing(Exception):
    """There is no server to test with."""


def find(package: str, *names: str, places: str = "/usr/sbin") -> Path:
    """Find a program by one of its names, or install the package that brings it.

    It is looked for on the PATH, and then in the places of a pattern, the newest first.
    """
    may_install = os.geteuid() == 0 and shutil.which("apt-get")
    for words in ([], ["install", package], ["update"], ["install", package]):
        if words and may_install:
            subprocess.run(["apt-get", "-y", "-qq", *words], check=False, capture_output=True)
        path = os.pathsep.join((os.environ.get("PATH", ""), *_newest_first(places)))
        for name in names:
            found = shutil.which(name, path=path)
            if found:
                return Path(found)
    message = f"{names[0]} is not installed; apt-get install {package}"
    raise ServerMissing(message)


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
