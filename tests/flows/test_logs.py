"""Logs: the processes of a worker write to one place, and their lines stay whole."""

import socket
import subprocess
import sys

PROGRAM = """
import structlog
from reprieve.worker import logs
logs.configure(logs.Logs(style="json"))
structlog.get_logger("reprieve").info("one line")
"""


def test_a_line_is_one_write() -> None:
    # Each write to such a socket arrives by itself.
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with ours, theirs:
        subprocess.run([sys.executable, "-c", PROGRAM], check=True, stderr=theirs.fileno())
        ours.setblocking(False)
        line = ours.recv(10_000)
    assert b"one line" in line
    assert line.endswith(b"}\n")
