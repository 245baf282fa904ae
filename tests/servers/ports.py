"""Where servers of tests listen, and who runs them."""

import os
import shutil
import socket
from pathlib import Path

UNPRIVILEGED = ("postgres", "nobody")
"""Who runs a server when we are root, which most of them refuse."""


def free_port(highest: int = 65_535) -> int:
    """Answer a port that nobody listens on."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = int(free.getsockname()[1])
        if port <= highest:
            return port


def unprivileged(folder: Path) -> str | None:
    """Give the folder to somebody who may run a server; None is ourselves."""
    if os.geteuid() != 0:
        return None
    for name in UNPRIVILEGED:
        try:
            shutil.chown(folder, name)
        except LookupError:
            continue
        return name
    message = f"servers refuse to run as root, and none of the users {', '.join(UNPRIVILEGED)} exists"
    raise LookupError(message)
