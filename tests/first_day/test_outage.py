"""The first experiment of a new user: one job, and a mail server that is away for a while."""

import threading
from typing import Any

import pytest

from reprieve.clock import ticks
from tests.first_day.user import PATIENCE, User
from tests.servers.smtp import MailServer

SHOP = """
import os
import smtplib
from email.message import EmailMessage

from reprieve import Policy, Reprieve, rules
from reprieve.backoff import Exponential

app = Reprieve()


@app.task(dependency="mail", policy=Policy(max_attempts=3, backoff=Exponential("100ms"), rules=[rules.smtp]))
def send_welcome(address: str) -> None:
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = "shop@example.org", address, "Welcome"
    mail.set_content("Hello!")
    with smtplib.SMTP("127.0.0.1", int(os.environ["MAIL_PORT"])) as server:
        server.send_message(mail)
"""

SHORT = 0.0
"""An outage that lasts until the job was spared a few times."""


def only_job(user: User, url: str) -> dict[str, Any]:
    (job,) = user.reprieve("jobs", "list", "--json", REPRIEVE_URL=url).document["jobs"]
    return dict(job)


def spared(user: User, url: str, times: int) -> dict[str, Any]:
    """Wait until the job was spared so often; return it."""
    deadline = ticks() + PATIENCE
    while (job := only_job(user, url)).get("spared", 0) < times:
        assert ticks() < deadline, job
        threading.Event().wait(0.2)
    return job


# By its policy the job would be dead within a second.
@pytest.mark.parametrize("outage", [SHORT, pytest.param(60.0, marks=pytest.mark.faults)])
def test_one_mail_survives_a_mail_server_that_is_away(
    user: User, url: str, mail_server: MailServer, outage: float
) -> None:
    user.write("shop.py", SHOP)
    mail_server.stop()
    environ = {"MAIL_PORT": str(mail_server.port), "REPRIEVE_URL": url, "REPRIEVE_APP": "shop:app"}
    enqueued = user.reprieve("enqueue", "send_welcome", "ana@example.org", **environ)
    assert enqueued.status == 0, enqueued.stderr
    with user.running("worker", "--log-level", "debug", REPRIEVE_PROCESSES="1", **environ) as worker:
        worker.wait_for("job parked")
        threading.Event().wait(outage if outage > SHORT else 0)
        job = spared(user, url, 4)
        assert (job.get("charged", 0), job["parkedOn"]) == (0, "mail")
        shown = " ".join(user.reprieve("jobs", "show", job["id"], REPRIEVE_URL=url).stdout.split())
        assert job["status"] == "running" or "waits for mail: [Errno 111] Connection refused; no answer since" in shown
        assert "job died" not in worker.output
        mail_server.start()
        back = ticks()
        worker.wait_for("job succeeded")
        # A tenth of a long outage, and the time that the attempt takes.
        assert outage == SHORT or ticks() - back < 6.0
        assert worker.stop() == 0
    assert [mail["To"] for mail in mail_server.mails] == ["ana@example.org"]
    job = only_job(user, url)
    assert (job["status"], job.get("charged", 0)) == ("succeeded", 0)
