"""What a claim writes back after its choice, in one statement."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from reprieve.core.fairness.candidates import load_of
from reprieve.core.fairness.choice import Choice
from reprieve.core.fairness.updates import lane_updates, limiter_updates, tenant_updates
from reprieve.core.rate import Meter
from reprieve.stores.postgres.candidates import CandidateReader, IdleTenant
from reprieve.stores.postgres.released import ReleasedSlots
from reprieve.stores.postgres.rows import array_of

_encode = msgspec.json.encode


class Watermarks(msgspec.Struct, frozen=True):
    """Where the watermarks of lanes move to."""

    fresh: dict[int, str]
    """The last fresh job that was taken."""
    ready: dict[int, int]
    """When the last job became ready that was taken off `ready`."""


class ClaimUpdates:
    """The parameters of `write_claim`: lanes, tenants, limiters and the queue as a choice left them.

    Slots that the claim has released before are written with them.
    """

    def __init__(
        self,
        choice: Choice,
        reader: CandidateReader,
        watermarks: Watermarks,
        idle: Iterable[IdleTenant],
        released: ReleasedSlots,
    ) -> None:
        """Take the choice, and up to where jobs were taken off each lane."""
        self._choice = choice
        self._reader = reader
        self._watermarks = watermarks
        self._idle = idle
        self._released = released

    def parameters(self, queue: int) -> dict[str, object]:
        """Return the parameters for a queue."""
        choice = self._choice
        state = array_of(msgspec.structs.astuple(choice.state)) if choice.picks else None
        return {
            **self._lanes(),
            **self._tenants(),
            **self._limiters(),
            "queue_id": queue,
            "fairness_state": state,
            "ended_jobs": array_of(self._released.jobs),
        }

    def _lanes(self) -> dict[str, str]:
        names = ("locations", "taken", "fresh_watermarks", "ready_watermarks", "is_open", "blocked_by", "served")
        rows: list[tuple[object, ...]] = []
        for lane in lane_updates(self._choice):
            watermarks = (self._watermarks.fresh.get(lane.id), self._watermarks.ready.get(lane.id))
            location = self._location(lane.id)
            rows.append((location, lane.taken, *watermarks, lane.is_open, lane.blocked_by, lane.served))
        return _columns("lane", names, rows)

    def _tenants(self) -> dict[str, str]:
        names = ("locations", "running", "loads", "finishes", "is_candidate", "blocked", "reopens_ats", "served")
        unchanged = (None,) * 7
        rows: list[tuple[object, ...]] = [
            (self._location(tenant.id), tenant.running, load_of(tenant.running, tenant.weight), *unchanged)
            for tenant in self._idle
        ]
        for tenant in tenant_updates(self._choice):
            use = (self._location(tenant.id), tenant.running, tenant.load, tenant.finish)
            block = (tenant.is_candidate, int(tenant.blocked), tenant.reopens_at)
            rows.append((*use, *block, tenant.served, tenant.served_at, _meter(tenant.meter)))
        return _columns("tenant", (*names, "served_ats", "meters"), rows)

    def _limiters(self) -> dict[str, str]:
        limiters = self._reader.limiters
        released = [limiters[limiter] for limiter in self._released.limiters if limiter in limiters]
        rows: list[tuple[object, ...]] = []
        for limiter in limiter_updates(self._choice, released):
            block = (limiter.blocked_lanes > 0, limiter.reopens_at)
            rows.append((self._location(limiter.id), limiter.running, *block, _meter(limiter.meter)))
        return _columns("limiter", ("locations", "running", "blocks", "reopens_ats", "meters"), rows)

    def _location(self, row: int) -> str:
        """Return where a row was read, as an element of an array."""
        return f'"{self._reader.row_locations[row]}"'


def _columns(table: str, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, str]:
    """Return rows as an array for each column, under the names of the parameters."""
    columns = zip(*rows, strict=True) if rows else [()] * len(names)
    return {f"{table}_{name}": array_of(values) for name, values in zip(names, columns, strict=True)}


def _meter(meter: Meter | None) -> str | None:
    """Return a meter as an element of an array: it is made of numbers and brackets."""
    return None if meter is None else f'"{_encode(meter).decode()}"'
