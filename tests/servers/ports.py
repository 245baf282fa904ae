"""Where servers of tests listen, and who runs them.

Not at the ports that the system gives to clients: a server that has still to start, or that is away for a moment, would
find its own taken, and a client that asks for it would reach another server.
"""

import atexit
import os
import shutil
import socket
from pathlib import Path

FIRST, LAST = 10_240, 20_240
"""The ports of our servers; those of a Cluster use others above them besides."""

_SIGNS: list[socket.socket] = []
"""What keeps others from the ports that this process was given."""


@atexit.register
def _let_go() -> None:
    for sign in _SIGNS:
        sign.close()


UNPRIVILEGED = ("postgres", "daemon")
"""Who runs a server when we are root, which most of them refuse."""


def free_port(bus: int = 0) -> int:
    """Return a port that is not in use, and is not given again while this process lives, here or elsewhere.

    Where a server needs two, no process listens on the one that lies so far above it either.
    """
    for port in range(FIRST, LAST):
        # The unused port of the same number, for datagrams, is the sign that it is taken.
        sign = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            sign.bind(("127.0.0.1", port))
            for number in (port, port + bus):
                socket.create_server(("127.0.0.1", number)).close()
        except OSError:
            sign.close()
        else:
            _SIGNS.append(sign)
            return port
    message = f"all ports from {FIRST} to {LAST} are taken"
    raise OSError(message)


def unprivileged(folder: Path) -> str | None:
    """Give the folder to a user who may run a server; None is the present user."""
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
