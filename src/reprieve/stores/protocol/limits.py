"""Limits: how many jobs of a queue, tenant, task, dependency or group may run, and how often."""

from collections.abc import Sequence
from typing import Literal, Protocol, TypeAlias

from msgspec import UNSET, UnsetType

from reprieve.core.audit import Author
from reprieve.core.rate import Rate
from reprieve.core.record import Record

Pause: TypeAlias = Literal["schedule", "retry"]

Subject: TypeAlias = Literal["queue", "tenant", "task", "dependency", "group", "tenant_dependency"]
"""What has limits. A tenant has limits in each of its queues; a `tenant_dependency` is the calls of one tenant to one
dependency, in all queues."""


class LimitUpdate(Record):
    """New limits of one subject, which every later claim respects.

    A field that is UNSET stays as it is. New limits also apply to jobs that wait already. A name that the store does
    not know yet has its limits once it appears.

    A name of None sets the default of all names of the subject, also of those that appear later: of tenants in a queue
    or, without one, in all queues; of a dependency's tenants or, without one, of all tenants and dependencies. A limit
    that a name has itself comes before the default, field by field. Weights have no default.
    """

    subject: Subject
    name: str | None
    queue: str = ""
    """The queue of a tenant; empty for other subjects."""
    dependency: str = ""
    """The dependency of a tenant_dependency; empty for other subjects."""
    permits: int | Literal["default"] | UnsetType | None = UNSET
    """How many jobs a gate lets run: 0 holds it, a number is a step of its ramp, None opens it whatever the default is,
    "default" removes the name's own value, as with the fields below."""
    max_running: int | Literal["default"] | UnsetType | None = UNSET
    rate: Rate | Literal["default"] | UnsetType | None = UNSET
    weight: float | UnsetType = UNSET
    """The weight of a tenant."""
    pauses: tuple[Pause, ...] | Literal["default"] | UnsetType = UNSET
    """Of a queue: the waits that do not end while they are paused."""


class LimitState(Record):
    """The limits and the use of one subject."""

    subject: Subject
    name: str
    queue: str = ""
    dependency: str = ""
    own: tuple[str, ...] = ()
    """Which of permits, max_running, rate and pauses are its own; the others are those of the default."""
    ready: int = 0
    """Jobs that could run now. A job whose time has just come counts from the next claim on."""
    oldest_at: int | None = None
    """Since when the oldest of them is ready: none is ready for longer. Jobs with an SLA do not count: their lanes are
    in the order of SLAs, so that the oldest is not known."""
    running: int = 0
    permits: int | None = None
    max_running: int | None = None
    rate: Rate | None = None
    weight: float = 1.0
    pauses: tuple[Pause, ...] = ()
    served: int = 0
    served_at: int | None = None
    streak: int = 0
    rounds: int = 0


class LimitPage(Record):
    """Some of the limit states of a subject; an empty cursor means that there are no more."""

    states: tuple[LimitState, ...]
    cursor: str = ""


class LimitStore(Protocol):
    """Changes and reads limits."""

    async def update_limits(self, updates: Sequence[LimitUpdate], now: int, author: Author) -> None:
        """Change limits, rates, weights and pauses, in one write. Its cost does not depend on how many jobs wait.

        If a person makes it, the same write has an audit entry for each update that changes anything. The stream of
        events is told of each update, and again if the call is repeated.
        """
        ...

    async def limit_states(
        self, subject: Subject, queue: str = "", prefix: str = "", cursor: str = "", limit: int = 100
    ) -> LimitPage:
        """Return a page of the limits and the use of every queue, tenant, task, dependency, group or pair.

        `queue` selects one queue, or its tenants; `prefix` names that begin so. A page may be short or empty and still
        have a cursor. Names that nothing waits, runs or is limited for may be left out.
        """
        ...

    async def limit_defaults(self) -> list[LimitUpdate]:
        """Return the defaults that are set, as updates that would set them again."""
        ...
