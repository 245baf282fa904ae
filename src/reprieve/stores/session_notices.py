"""What the stream is told of sessions, the same in every store."""

from reprieve.core.notice import Notice
from reprieve.stores.protocol import Heartbeat


def session_opened(heartbeat: Heartbeat) -> Notice:
    """Return the notice of a session that is opened."""
    return Notice(
        at=heartbeat.now,
        name="SessionOpened",
        kind="session",
        subject=heartbeat.session,
        facts={
            "host": heartbeat.host,
            "pid": heartbeat.pid,
            "version": heartbeat.version,
            "slots": heartbeat.slots,
            "queues": len(heartbeat.queues),
        },
    )


def session_ended(heartbeat: Heartbeat) -> Notice:
    """Return the notice of a session that ends itself."""
    return Notice(at=heartbeat.now, name="SessionEnded", kind="session", subject=heartbeat.session)


def session_died(session: str, now: int) -> Notice:
    """Return the notice of a session that is declared dead."""
    return Notice(at=now, name="SessionDied", kind="session", subject=session)
