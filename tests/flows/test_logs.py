"""Logs: the processes of a worker write to one place, their lines stay whole, and no process depends on a reader."""

import json
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
    log.info("without a reader", number=number)
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


ADOPTS = """
import logging, logging.config, structlog
from reprieve.context import Running, enter
from reprieve.core.job import Job
from reprieve.worker import logs
logging.getLogger("library").addHandler(logging.NullHandler())
{setup}
logs.configure(logs.Logs(style="json"))
logs.attach()
logs.attach()
enter(Running(Job(id="job-1", task="send", tenant="acme", attempt=2, created_at=0, due_at=0), print))
logging.getLogger("shop").info("to %s", "ana", extra={{"task": "mine"}})
logging.getLogger("shop").debug("too quiet")
try:
    1 / 0
except ZeroDivisionError:
    logging.getLogger("library").exception("oops")
"""


def lines_of(setup: str) -> list[str]:
    """Return what a process writes that has set its logging up in this way."""
    program = ADOPTS.format(setup=setup)
    ended = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    return ended.stderr.splitlines()


def test_lines_of_an_application_without_handlers_are_shown_as_those_of_the_worker() -> None:
    first, second = map(json.loads, lines_of(""))
    assert first.pop("timestamp")
    assert first == {
        "event": "to ana",
        "level": "info",
        "logger": "shop",
        "jobId": "job-1",
        "companyId": "acme",
        "tenant": "acme",
        "task": "mine",
        "attempt": 2,
    }
    assert (second["level"], second["logger"], second["task"]) == ("error", "library", "send")
    assert second["traceback"].endswith("ZeroDivisionError: division by zero")


def test_a_handler_of_the_application_stays_alone_and_has_the_fields() -> None:
    root = "logging.basicConfig(level=10, format='%(jobId)s %(task)s %(attempt)s %(message)s')"
    named = (
        "logging.getLogger('shop').addHandler(h := logging.StreamHandler()); logging.getLogger('shop').setLevel(20); "
        "h.setFormatter(logging.Formatter('%(jobId)s %(task)s %(attempt)s %(message)s'))"
    )
    assert lines_of(root)[:3] == ["job-1 mine 2 to ana", "job-1 send 2 too quiet", "job-1 send 2 oops"]
    # Python itself shows what has no handler at all.
    assert lines_of(named)[0] == "job-1 mine 2 to ana"
