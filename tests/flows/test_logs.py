"""Logs: the processes of a worker write to one place, their lines stay whole, and nobody depends on a reader."""

import os
import socket
import subprocess
import sys
from pathlib import Path

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


GOES_ON = """
import os, sys, structlog
from reprieve.worker import logs
logs.configure(logs.Logs(style="json"))
log = structlog.get_logger("reprieve")
for number in range(3):
    log.info("nobody reads this", number=number)
    log.warning("nor this")
print("done")
"""


def test_a_process_whose_reader_has_gone_goes_on() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as pipe:
        ended = subprocess.run([sys.executable, "-c", GOES_ON], check=False, stdout=subprocess.PIPE, stderr=pipe)
    # Python itself exits with another status when it cannot flush in the end.
    assert (ended.returncode, ended.stdout) == (0, b"done\n")


def test_a_process_without_standard_error_goes_on() -> None:
    ended = subprocess.run(
        ["sh", "-c", 'exec "$0" -c "$1" 2>&-', sys.executable, GOES_ON], check=False, stdout=subprocess.PIPE
    )
    assert (ended.returncode, ended.stdout) == (0, b"done\n")


def test_a_line_that_cannot_be_written_is_lost_and_nothing_else() -> None:
    # A file that was opened to be read takes no line. The buffer is not flushed in the end, as in a child.
    with Path(os.devnull).open("rb") as full:
        ended = subprocess.run(
            [sys.executable, "-c", GOES_ON + "sys.stdout.flush(); os._exit(0)"],
            check=False,
            stdout=subprocess.PIPE,
            stderr=full,
        )
    assert (ended.returncode, ended.stdout) == (0, b"done\n")
