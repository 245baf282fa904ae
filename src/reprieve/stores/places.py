"""Where jobs are found: five places, each in the order of a time of its own."""

from typing import Final, Literal, NamedTuple, TypeAlias

from reprieve.core.job import State
from reprieve.core.record import Record
from reprieve.core.status import Status
from reprieve.stores.protocol import Filter, Order, Range

Place: TypeAlias = Literal["running", "ready", "delayed", "ended", "succeeded"]

PLACES: Final[tuple[Place, ...]] = ("running", "ready", "delayed", "ended", "succeeded")
"""In the order in which a search goes through them."""

STATUSES: Final[dict[Place, frozenset[Status]]] = {
    "running": frozenset({"running", "stuck"}),
    "ready": frozenset({"ready", "parked"}),
    "delayed": frozenset({"ready", "scheduled", "retrying", "parked"}),
    "ended": frozenset({"dead", "cancelled"}),
    "succeeded": frozenset({"succeeded"}),
}
"""The statuses that jobs of a place can have. A delayed job that is due is ready, also before it is promoted; a
ready one whose gate is held is parked."""

STATES: Final[dict[Place, frozenset[State]]] = {
    "running": frozenset({"running"}),
    "ready": frozenset({"waiting"}),
    "delayed": frozenset({"waiting"}),
    "ended": frozenset({"dead", "cancelled"}),
    "succeeded": frozenset({"succeeded"}),
}

WAITING: Final = STATUSES["delayed"]
RUNNING: Final = STATUSES["running"]
ENDED: Final = STATUSES["ended"] | STATUSES["succeeded"]

Key: TypeAlias = int | str


class LaneGroup(NamedTuple):
    """The lanes whose jobs are merged: from the first on, and before the end, also while lanes come and go."""

    first: Key
    end: Key


class PlaceKey(NamedTuple):
    """Where a job stands in a place: in which group of lanes, at which time, and by its id."""

    group: LaneGroup | None
    """Of ready jobs; else None."""
    at: int
    """Less than 0: the start of a group whose end is not known yet."""
    id: Key


class Position(NamedTuple):
    """Where a search goes on: after a key in a place."""

    place: int
    key: PlaceKey | None
    """None: from the start of the place."""


class Wanted(Record):
    """A search: the filter, the order, and the time at which it asks."""

    filter: Filter
    order: Order
    now: int

    @property
    def is_newest(self) -> bool:
        """Whether the latest come first."""
        return self.order == "newest"


def places_of(wanted: Filter) -> list[int]:
    """Return the numbers of the places that have jobs which a filter can match, in their order."""
    statuses = possible_statuses(wanted)
    return [number for number, place in enumerate(PLACES) if STATUSES[place] & statuses]


def possible_statuses(wanted: Filter) -> frozenset[Status]:
    """Return the statuses that a job which matches a filter can have; none if the filter contradicts itself."""
    statuses = wanted.statuses or WAITING | RUNNING | ENDED
    if wanted.death is not None:
        statuses &= {"dead"}
    if wanted.session:
        statuses &= RUNNING
    if wanted.ended is not None:
        statuses &= ENDED
    return statuses


def delayed_range(wanted: Filter, status: Status, now: int) -> Range | None:
    """Return when the delayed jobs are due that a filter wants; `status` is what those are that are not due yet."""
    statuses = possible_statuses(wanted)
    since = 0 if statuses & {"ready", "parked"} else now + 1
    until = None if status in statuses else now + 1
    if wanted.due is not None:
        since = max(since, wanted.due.since or 0)
        until = min((end for end in (until, wanted.due.until) if end is not None), default=None)
    return None if until is not None and since >= until else Range(since=since, until=until)
