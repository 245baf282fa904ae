"""Counting the jobs of a partition by the counters of names and lanes; each part reads a bounded number of them."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Final

import msgspec

from reprieve.core.duration import milliseconds
from reprieve.core.status import Status
from reprieve.stores.places import LaneGroup
from reprieve.stores.protocol import Filter
from reprieve.stores.record import LANE_COUNTERS
from reprieve.stores.redis.find import PartitionPlaces
from reprieve.stores.redis.lane_names import ALL_LANES, MAX_LANES_READ, parse_lane
from reprieve.stores.redis.replies import LeasedKey, pairs, rows
from reprieve.stores.search import is_in
from reprieve.stores.tallying import COUNTERS, MAX_DUE, CountedSubject, LaneCount, Part

MAX_STUCK: Final = 500
"""Jobs that may be stuck which a tally reads: the time that each may take is in its record."""

_encode = msgspec.msgpack.Encoder().encode


class PartitionSearch(PartitionPlaces):
    """One search, or tally, of a partition."""

    def kept_counts(self, subject: CountedSubject, names: Sequence[str]) -> Mapping[str, Mapping[Status, int]]:
        """Return the kept counters of some names, or of all."""
        key = f"{self._tag}:counts:{subject}"
        fields = [f"{name}\0{index}" for name in names for index in range(1, len(COUNTERS) + 1)]
        if names:
            values = self._connections.command("HMGET", key, *fields)
            found = {field.encode(): value for field, value in zip(fields, values, strict=True) if value is not None}
        else:
            found = self._connections.command("HGETALL", key)
        counts: dict[str, dict[Status, int]] = defaultdict(dict)
        for field, value in found.items():
            name, _, index = field.decode().rpartition("\0")
            counts[name][COUNTERS[int(index) - 1]] = int(value)
        return counts

    def uncounted(self) -> Part:
        """Return what is in no counter yet: nothing, since enqueues count."""
        return Part(())

    def lane_counts(self, wanted: Filter, at_most: int) -> Part:
        """Return the counters of the lanes that a filter may match."""
        return self._counted(wanted, at_most, only_held=False)

    def held(self, at_most: int) -> Part:
        """Return the ready jobs of lanes that a gate holds."""
        if not self._held.has_any:
            return Part(())
        part = self._counted(Filter(), at_most, only_held=True)
        return Part([one._replace(numbers={"ready": one.numbers["ready"]}) for one in part.lanes], part.is_whole)

    def _counted(self, wanted: Filter, at_most: int, *, only_held: bool) -> Part:
        counts: list[LaneCount] = []
        group, read = ALL_LANES, 0
        while read < at_most:
            most = min(MAX_LANES_READ, at_most - read)
            lanes = self.lanes.first_of(wanted, group, most)
            chosen = [lane for lane in lanes if is_in(lane, wanted) and (not only_held or self._is_held(lane))]
            found = self._connections.read("lane_counts", self._tag, _encode([one.name for one in chosen]))
            width = len(COUNTERS)
            for number, lane in enumerate(chosen):
                numbers = dict(zip(COUNTERS, found[number * width : (number + 1) * width], strict=True))
                counts.append(LaneCount(lane, self._is_held(lane), numbers))
            if len(lanes) < most:
                return Part(counts)
            group, read = LaneGroup(f"{lanes[-1].name}\0", ""), read + len(lanes)
        return Part(counts, is_whole=False)

    @cached_property
    def _due(self) -> tuple[Sequence[bytes | int], Sequence[bytes | int]]:
        due, succeeded = self._connections.read("due_counts", self._tag, self._now, MAX_DUE)
        return due, succeeded

    def due(self) -> Part:
        """Return delayed jobs that are due, by the counters in which they are."""
        counts: dict[bytes, Counter[Status]] = defaultdict(Counter)
        for lane, wait in pairs(self._due[0]):
            counts[lane][LANE_COUNTERS[wait or 1]] += 1
        lanes = [(parse_lane(lane.decode()), numbers) for lane, numbers in counts.items()]
        found = [LaneCount(lane, self._is_held(lane), numbers) for lane, numbers in lanes]
        return Part(found, len(self._due[0]) < 2 * MAX_DUE)

    def running(self, stuck_after: float) -> Part:
        """Return the jobs that run, as running or stuck."""
        leased = list(rows(LeasedKey, self._connections.read("running_keys", self._tag, "")))
        doubtful = [one.id for one in leased if self._now - int(one.at) >= milliseconds(stuck_after)]
        stuck = {
            one.id
            for one in self._stored(doubtful[:MAX_STUCK], "find_running")
            if self.status(one.job(), 0, stuck_after) == "stuck"
        }
        counts: dict[bytes, Counter[Status]] = defaultdict(Counter)
        for one in leased:
            counts[one.lane]["stuck" if one.id in stuck else "running"] += 1
        lanes = [(parse_lane(lane.decode()), numbers) for lane, numbers in counts.items()]
        found = [LaneCount(lane, is_held=False, numbers=numbers) for lane, numbers in lanes]
        return Part(found, len(doubtful) <= MAX_STUCK)

    def succeeded_counts(self) -> Mapping[str, int]:
        """Return how many succeeded jobs each queue keeps."""
        return {queue.decode(): number for queue, number in pairs(self._due[1])}
