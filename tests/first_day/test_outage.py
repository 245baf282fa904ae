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


def only_job(user: User, url: str) -> dict[str, Any]:
    (job,) = user.reprieve("jobs", "list", "--json", REPRIEVE_URL=url).document["jobs"]
    return dict(job)


# By its policy the job would be dead within a second.
@pytest.mark.parametrize("outage", [6.0, pytest.param(60.0, marks=pytest.mark.faults)])
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
        threading.Event().wait(outage)
        job = only_job(user, url)
        assert (job.get("charged", 0), job["parkedOn"]) == (0, "mail")
        assert job["spared"] > 3
        shown = " ".join(user.reprieve("jobs", "show", job["id"], REPRIEVE_URL=url).stdout.split())
        assert job["status"] == "running" or "waits for mail: [Errno 111] Connection refused; no answer since" in shown
        assert "job died" not in worker.output
        mail_server.start()
        back = ticks()
        worker.wait_for("job succeeded")
        # A tenth of the outage, and the time that it takes to look and to send; exact bounds are a matter of `faults`.
        assert ticks() - back < (6.0 if outage > 6.0 else PATIENCE)
        assert worker.stop() == 0
    assert [mail["To"] for mail in mail_server.mails] == ["ana@example.org"]
    job = only_job(user, url)
    assert (job["status"], job.get("charged", 0)) == ("succeeded", 0)
