"""Sessions: who claims jobs, and for how long."""

from typing import Protocol

from reprieve.core.job import Job
from reprieve.core.record import Record

MAX_SESSION_QUEUES, MAX_SESSION_TASKS = 1_000, 20_000
"""Names of queues and of tasks that one session may have."""


class Heartbeat(Record):
    """Opens a session, or extends its lease by so many seconds from `now`.

    `recover` may expire a session whose lease has run out. Until then the session is alive and may extend its lease.
    """

    session: str
    now: int
    lease: float
    slots: int
    """How many jobs the session runs at once; fairness shares out the slots of all sessions."""
    prefetch: int = 0
    """How many jobs it fetches ahead, beyond its slots."""
    running: int = 0
    """How many jobs it runs now; the others that it holds are fetched ahead."""
    queues: tuple[str, ...] = ()
    """The queues that it serves, at most `MAX_SESSION_QUEUES`; empty: all."""
    is_new: bool = False
    """True opens the session. Otherwise a session that the store does not know counts as dead."""
    host: str = ""
    """This and the fields below say who opens the session. They are stored once, when it is opened."""
    pid: int = 0
    version: str = ""
    """The version of Reprieve."""
    tasks: tuple[str, ...] = ()
    """The names of the tasks that it can run, at most `MAX_SESSION_TASKS`."""


class Session(Record):
    """A session as its opening and its last heartbeat describe it; a field that neither gave is empty or 0."""

    id: str
    host: str = ""
    pid: int = 0
    version: str = ""
    queues: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    slots: int = 0
    prefetch: int = 0
    running: int = 0
    since: int = 0
    """When it was opened."""
    heartbeat_at: int = 0
    """When its last heartbeat was sent."""


class SessionStore(Protocol):
    """Keeps sessions alive, and finds those that are not."""

    async def heartbeat(self, heartbeat: Heartbeat) -> bool:
        """Open a session or extend its lease; return whether it is alive.

        A dead session must stop its jobs, which other sessions may run by now. A lease of 0 ends the session, so that
        its jobs can be recovered at once.
        """
        ...

    async def sessions(self, now: int) -> list[Session]:
        """Return the sessions whose lease lasts at `now`, by id. A session that has ended is not among them."""
        ...

    async def recover(self, now: int, limit: int = 100) -> list[Job]:
        """Expire sessions past their lease; return the jobs they hold.

        The jobs stay leased until a change takes them back: a result that arrives before still counts.
        """
        ...
