"""What a store may be able to do beyond the protocol, and how callers ask: `isinstance(store, Immediate)`."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from reprieve.core.ids import is_id
from reprieve.core.job import Job
from reprieve.core.record import Record


@runtime_checkable
class Immediate(Protocol):
    """A store that can enqueue without an event loop, faster than through a loop in another thread."""

    def enqueue_sync(self, jobs: Sequence[Job], now: int) -> list[str] | None:
        """Store new jobs as `enqueue` does, blocking the calling thread. None: call `enqueue` instead.

        The jobs may be stored then; `enqueue` recognises them by their ids.
        """
        ...


@runtime_checkable
class Transactional(Protocol):
    """A store that can enqueue inside a transaction of the caller."""

    def enqueue_in(self, connection: Any, jobs: Sequence[Job], now: int) -> list[str]:  # noqa: ANN401 - the driver's own
        """Store new jobs in the caller's open transaction; they exist once it commits."""
        ...


@runtime_checkable
class AsyncTransactional(Protocol):
    """A store that can also enqueue inside a transaction on an asynchronous connection of the caller."""

    def is_asynchronous(self, connection: Any) -> bool:  # noqa: ANN401 - the driver's own
        """Return whether the calls of this connection must be awaited."""
        ...

    async def aenqueue_in(self, connection: Any, jobs: Sequence[Job], now: int) -> list[str]:  # noqa: ANN401 - as above
        """Store new jobs in the caller's open transaction; they exist once it commits."""
        ...


ParameterStyle: TypeAlias = Literal["pyformat", "numbered", "named"]
"""How a statement writes its parameters: `%(ids)s`, `$1` or `:ids`."""


@runtime_checkable
class StatementProvider(Protocol):
    """A store whose enqueue is one SQL statement, which a caller can run with any driver."""

    def statement(
        self, jobs: Sequence[Job], now: int, style: ParameterStyle = "pyformat"
    ) -> tuple[str, dict[str, Any] | list[Any]]:
        """Return the statement that stores new jobs, and its parameters. It returns one text: the ids as JSON."""
        ...


class OutboxSink(Protocol):
    """Takes jobs that a relay fetched from an outbox; each is stored once, even if it is delivered again much later."""

    async def prepare(self) -> None:
        """Begin a delivery, before jobs are taken from the outbox; jobs taken earlier are refused from now on."""
        ...

    async def deliver(self, jobs: Sequence[Job], now: int) -> list[str]:
        """Store jobs as `enqueue` does, except those that were delivered before, even if they have ended since.

        The jobs must have been taken since `prepare`; 30 seconds after it they are refused with a `StoreError`.
        """
        ...

    def note_removed(self, ids: Sequence[str]) -> None:
        """Note that these jobs were deleted from the outbox, so that the store can soon forget their delivery."""
        ...

    async def close(self) -> None:
        """Write what was noted to the store."""
        ...


@runtime_checkable
class RelayTarget(Protocol):
    """A store that can take jobs from outboxes."""

    def outbox_sink(self) -> OutboxSink:
        """Return the outbox sink of one relay."""
        ...


FaultPoint: TypeAlias = Literal["before", "after"]
"""When an injected fault happens: before the write is stored, or after it, so that only the reply is lost."""


@runtime_checkable
class Faulty(Protocol):
    """A store whose next write can be made to fail, for tests of its callers."""

    def inject(self, point: FaultPoint) -> None:
        """Make the next write raise a `StoreError`."""
        ...


@runtime_checkable
class Damageable(Protocol):
    """A store that can damage the record of a job, for tests of what it does with one that cannot be read."""

    async def damage(self, job_id: str, packed: bytes) -> None:
        """Replace what the store has packed of a job by these bytes. Its id, its lane and its state stay."""
        ...


class EnqueueRules(Record):
    """What a store says about enqueues that `checked` combines for it."""

    is_id: Callable[[str], bool] = is_id
    """Whether the store can keep a job with this id."""
    max_concurrent_calls: int = 1
    """How many enqueues of one event loop may be under way."""
    keys_may_block: bool = False
    """Whether the key of a job can block on a transaction of another caller; such jobs get calls of their own."""


@runtime_checkable
class HasEnqueueRules(Protocol):
    """A store whose rules differ from the defaults."""

    @property
    def enqueue_rules(self) -> EnqueueRules:
        """The rules."""
        ...
