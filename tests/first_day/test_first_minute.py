"""The README and the page about the first minute, followed to the letter, end in exactly one mail for each job."""

import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from reprieve.clock import ticks
from tests.first_day.terminal import UserTerminal
from tests.first_day.user import PATIENCE, User
from tests.servers.ports import free_port

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(python|toml|console|text)\n(.*?)^```$|^(Stop) the mail server", re.MULTILINE | re.DOTALL)
"""What a person writes, types and sees, and the sentence that has the mail server stopped."""
PORT = "8025"
"""The port in the documents; the tests need one that is free."""
FILES = {"python": "shop.py", "toml": "pyproject.toml"}
MAIL = "---------- MESSAGE FOLLOWS ----------"
"""What the mail server prints before each mail."""


def readme() -> str:
    text = (ROOT / "README.md").read_text("utf-8")
    return text.partition("## Sixty seconds")[2].partition("What would happen to a failed job?")[0]


def first_minute() -> str:
    return (ROOT / "docs/start/first-minute.md").read_text("utf-8").partition("## Three things")[0]


class Desk:
    """Two terminals, in which a person does what a document says."""

    def __init__(self, user: User, mails: UserTerminal, commands: UserTerminal) -> None:
        self._user = user
        self._mails = mails
        self._commands = commands
        self._last = ""
        self.server: subprocess.Popen[bytes] | None = None
        self.worker: subprocess.Popen[bytes] | None = None

    def type(self, line: str) -> None:
        """Type a command; all but the server and the worker end at once, and well."""
        self._last = line
        if line.startswith("pip install"):
            assert line == "pip install reprieve aiosmtpd"  # both are there
        elif "aiosmtpd" in line:
            self.server = self._mails.type(line)
        elif "worker" in line:
            self.worker = self._commands.type(line)
        else:
            assert self._commands.type(line).wait(PATIENCE) == 0, self._commands.screen

    def see(self, expected: str) -> None:
        """Wait for what the document shows; a list is asked for until it is so."""
        deadline = ticks() + PATIENCE
        while "jobs list" in self._last and not self._commands.shows(expected) and ticks() < deadline:
            self.type(self._last)
        self._commands.wait_for(expected)

    def stop(self, process: subprocess.Popen[bytes] | None) -> None:
        """Press Ctrl-C."""
        assert process is not None
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE)

    def follow(self, document: str) -> None:
        """Do everything that a document says, in its order."""
        for kind, block, stop in BLOCK.findall(document):
            if stop:
                self.stop(self.server)
            elif kind in FILES:
                self._user.write(FILES[kind], block)
            elif kind == "text":
                self.see(block)
            else:
                for line in block.splitlines():
                    self.type(line)


@pytest.mark.parametrize(
    ("document", "mails"),
    [(readme, ["hello, user 42"]), (first_minute, ["hello, user 42", "hi, user 43", "hello, user 44"])],
)
def test_document_followed_to_the_letter_ends_in_one_mail_for_each_job(
    user: User, document: Callable[[], str], mails: list[str]
) -> None:
    with UserTerminal(user) as first, UserTerminal(user) as second:
        desk = Desk(user, first, second)
        desk.follow(document().replace(PORT, str(free_port())))
        desk.stop(desk.worker)
        assert desk.worker is not None
        assert desk.worker.returncode == 0
        for subject in mails:
            first.wait_for(f"Subject: {subject}")
        assert first.screen.count(MAIL) == len(mails)
