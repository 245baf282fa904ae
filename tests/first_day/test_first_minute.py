"""The README and the page about the first minute, followed to the letter, end in exactly one mail for each job."""

import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.first_day.terminal import terminal_of
from tests.first_day.user import PATIENCE, User
from tests.servers.ports import free_port

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(python|console|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PORT = "8025"
"""The port in the documents; the tests need one that is free."""
MAIL = "---------- MESSAGE FOLLOWS ----------"
"""What the mail server prints before each mail."""


def readme() -> str:
    text = (ROOT / "README.md").read_text("utf-8")
    return text.partition("## Sixty seconds")[2].partition("What would happen to a failed job?")[0]


def first_minute() -> str:
    return (ROOT / "docs/start/first-minute.md").read_text("utf-8").partition("## Three things")[0]


@pytest.mark.parametrize(
    ("document", "mails"), [(readme, ["hello, user 42"]), (first_minute, ["hello, user 42", "hi, user 43"])]
)
def test_document_followed_to_the_letter_ends_in_one_mail_for_each_job(
    user: User, document: Callable[[], str], mails: list[str]
) -> None:
    worker: subprocess.Popen[bytes] | None = None
    with terminal_of(user) as first, terminal_of(user) as second:
        for kind, block in BLOCK.findall(document().replace(PORT, str(free_port()))):
            if kind == "python":
                user.write("shop.py", block)
            elif kind == "text":
                second.wait_for(block)
            for line in block.splitlines() if kind == "console" else ():
                if line.startswith("pip install"):
                    assert line == "pip install reprieve aiosmtpd"  # both are there
                elif "aiosmtpd" in line:
                    first.type(line)
                elif "worker" in line:
                    worker = second.type(line)
                else:
                    assert second.type(line).wait(PATIENCE) == 0, second.screen
        assert worker is not None
        worker.send_signal(signal.SIGINT)
        assert worker.wait(PATIENCE) == 0
        for subject in mails:
            first.wait_for(f"Subject: {subject}")
        assert first.screen.count(MAIL) == len(mails)
