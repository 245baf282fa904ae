"""The first experiment of a new user: one job, and a mail server that is away for a while."""

import threading

from tests.first_day.user import User
from tests.servers.smtp import MailServer

OUTAGE = 6.0
"""Seconds; by its policy the job would be dead long before."""

SHOP = """
import os
import smtplib
from email.message import EmailMessage

from reprieve import Exponential, Policy, Reprieve, rules

app = Reprieve("sqlite:///jobs.db")


@app.task(
    name="send_welcome",
    dependency="mail",
    policy=Policy(max_attempts=3, backoff=Exponential("100ms"), rules=[rules.smtp]),
)
def send_welcome(address: str) -> None:
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = "shop@example.org", address, "Welcome"
    mail.set_content("Hello!")
    with smtplib.SMTP("127.0.0.1", int(os.environ["MAIL_PORT"])) as server:
        server.send_message(mail)
"""


def test_one_mail_survives_a_mail_server_that_is_away(user: User, mail_server: MailServer) -> None:
    user.write("shop.py", SHOP)
    mail_server.stop()
    port = str(mail_server.port)
    enqueued = user.reprieve("enqueue", "shop:app", "send_welcome", "ana@example.org", MAIL_PORT=port)
    assert enqueued.status == 0, enqueued.stderr
    store = ("--store", "sqlite:///jobs.db")
    with user.running("worker", "shop:app", MAIL_PORT=port, REPRIEVE_PROCESSES="1") as worker:
        worker.wait_for("job parked")
        threading.Event().wait(OUTAGE)
        (job,) = user.reprieve("jobs", "list", *store, "--json").document["jobs"]
        assert (job.get("charged", 0), job["parkedOn"]) == (0, "mail")
        assert job["spared"] > 3
        shown = " ".join(user.reprieve("jobs", "show", job["id"], *store).stdout.split())
        assert job["status"] == "running" or "waits for mail: [Errno 111] Connection refused; no answer since" in shown
        assert "job died" not in worker.output
        mail_server.start()
        for _ in range(600):
            if mail_server.mails:
                break
            threading.Event().wait(0.05)
    assert [mail["To"] for mail in mail_server.mails] == ["ana@example.org"]
    (job,) = user.reprieve("jobs", "list", *store, "--json").document["jobs"]
    assert (job["status"], job.get("charged", 0)) == ("succeeded", 0)
