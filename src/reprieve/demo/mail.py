"""The application of the demo: one task that sends an e-mail over SMTP."""

import os
import smtplib
from email.message import EmailMessage

from reprieve.app import Reprieve
from reprieve.context import current_job
from reprieve.core import rules
from reprieve.core.backoff import Exponential
from reprieve.core.policy import Policy

PORT = "REPRIEVE_DEMO_PORT"
"""The environment variable with the port of the provider."""

app = Reprieve()

mail = Policy(
    max_attempts=5,
    backoff=Exponential("500ms", cap="4s", jitter=0.25),
    rules=[rules.smtp],
    deadline="1h",
)


@app.task(name="send_mail", queue="mail", policy=mail, dependency="smtp", timeout="10s")
def send_mail(recipient: str, subject: str) -> None:
    """Send one e-mail. Its Message-ID is the same in every attempt, so that the provider can recognise duplicates."""
    job = current_job()
    message = EmailMessage()
    message["From"] = "shop@example.org"
    message["To"] = recipient
    message["Subject"] = subject
    message["Message-ID"] = f"<{job.idempotency_key}@example.org>"
    message["X-Worker"] = str(os.getpid())
    message.set_content("Attempts fail; jobs survive.")
    with smtplib.SMTP("127.0.0.1", int(os.environ[PORT]), timeout=5) as smtp:
        smtp.send_message(message)
