"""Where servers of tests listen, and who runs them."""

import os
import shutil
import socket
from contextlib import suppress
from pathlib import Path

UNPRIVILEGED = ("postgres", "nobody")
"""Who runs a server when we are root, which most of them refuse."""


def free_port(bus: int = 0) -> int:
    """Answer a port that nobody listens on; nor on the one that lies so far above it, where a server needs both."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as free, suppress(OSError, OverflowError):
            port = int(free.getsockname()[1])
            if bus:
                socket.create_server(("127.0.0.1", port + bus)).close()
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
