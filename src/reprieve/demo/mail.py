"""The application of the demo: one task that sends an e-mail over SMTP, as an application of anybody's would."""

import os
import smtplib
from email.message import EmailMessage

from reprieve.app import Reprieve
from reprieve.context import current_job
from reprieve.core import rules
from reprieve.core.backoff import Exponential
from reprieve.core.policy import Policy

PORT = "REPRIEVE_DEMO_PORT"
"""The variable that says where the provider listens."""

app = Reprieve()

mail = Policy(
    max_attempts=5,
    backoff=Exponential("500ms", cap="4s", jitter=0.25),
    rules=[rules.smtp],
    deadline="1h",
)


@app.task(name="send_mail", queue="mail", policy=mail, dependency="smtp", timeout="10s")
def send_mail(recipient: str, subject: str) -> None:
    """Send one e-mail. Its Message-ID is the same in every attempt, so a provider can recognise it."""
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
