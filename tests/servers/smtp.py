"""A mail server for tests: a real SMTP port that takes mail, and that can be away for a while."""

from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes
from email.message import Message

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session

from tests.servers.ports import free_port


class MailServer:
    """A mail server on a loopback port of its own. While it is stopped, connections are refused."""

    def __init__(self) -> None:
        self.port = free_port()
        self.mails: list[Message] = []
        self.replies: list[str] = []
        """What the next mails are answered with, one each; a mail is taken when there is nothing left."""
        self._controller: Controller | None = None

    def start(self) -> None:
        """Listen."""
        self._controller = Controller(self, hostname="127.0.0.1", port=self.port)
        self._controller.start()

    def stop(self) -> None:
        """Refuse connections until the next start."""
        if self._controller is not None:
            self._controller.stop()
            self._controller = None

    async def handle_DATA(self, _server: SMTP, _session: Session, envelope: Envelope) -> str:  # noqa: N802 - aiosmtpd's name
        """Take a mail, or answer what a test wants."""
        if self.replies:
            return self.replies.pop(0)
        content = envelope.content
        assert isinstance(content, bytes)
        self.mails.append(message_from_bytes(content))
        return "250 OK"


@contextmanager
def running() -> Iterator[MailServer]:
    """Run a mail server."""
    server = MailServer()
    server.start()
    try:
        yield server
    finally:
        server.stop()
