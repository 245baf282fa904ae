"""Search: jobs by what is known of them, and how many there are. In threads, a page at a time."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import nlargest, nsmallest
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import replace

from reprieve.core.ids import id_to_bytes
from reprieve.core.job import Job, Wait
from reprieve.core.status import Status, status_of
from reprieve.core.unreadable import unreadable_record
from reprieve.stores.ended_lists import ListField, ended_lists, tried_list
from reprieve.stores.places import LaneGroup, Place, PlaceKey, Wanted, delayed_range, possible_statuses
from reprieve.stores.protocol import Filter, Range
from reprieve.stores.redis import limit_states
from reprieve.stores.redis.connections import Connections
from reprieve.stores.redis.lane_names import ALL_LANES, MAX_LANES_READ, LaneList, bound_between
from reprieve.stores.redis.limit_defaults import Defaults
from reprieve.stores.redis.loop_reader import LoopReader
from reprieve.stores.redis.records import entry_of
from reprieve.stores.redis.replies import ID_BYTES, LeasedKey, StoredJob, pairs, rows
from reprieve.stores.search import Candidate, LaneNames, Step, has_part, is_in, is_number

MAX_JOBS_PER_PAGE = 200
"""Jobs that one script reads."""

MAX_MERGED_LANES: Final = 100
"""Lanes whose ready jobs are merged in order; more lanes come one group after the other."""

MAX_GROWN_LANES: Final = 4 * MAX_MERGED_LANES
"""Lanes of a group that is gone on with: lanes that have come up since are merged too."""

MAX_SCORE: Final = 1 << 53
"""A time after all others, which a sorted set keeps exactly."""

_Set: TypeAlias = tuple[str, int, int]
"""A sorted set of jobs: its key, the first time, and the time before which it ends."""

_DELAYED: Final[dict[int, Status]] = {1: "scheduled", 2: "retrying", 3: "parked"}
"""What jobs of the sorted sets of delayed jobs are until they are due."""

_LETTERS: Final[dict[ListField, str]] = {
    "all": "a",
    "tenant": "t",
    "task": "k",
    "dependency": "d",
    "death": "x",
    "code": "c",
    "fingerprint": "f",
    "tenant_fingerprint": "p",
}
"""The letters of the lists of ended jobs, as in ended.lua, and of tried ones, as in tried.lua."""

_SEPARATOR: Final = "\0"
_HEX: Final = frozenset("0123456789abcdef")
_encode = msgspec.msgpack.Encoder().encode
_ENDED: tuple[Status, ...] = ("dead", "cancelled")
_DELAYS: Mapping[Wait, int] = {"turn": 1, "schedule": 1, "retry": 2, "gate": 3, "budget": 3}
"""The sorted sets of jobs that are due later, as in waiting.lua."""


def is_key(place: Place, key: PlaceKey) -> bool:
    """Return whether a search can go on after a key."""
    is_id = isinstance(key.id, str) and all(letter in _HEX for letter in key.id) and len(key.id) % 2 == 0
    lanes = key.group is not None and all(isinstance(bound, str) for bound in key.group)
    is_group = lanes if place == "ready" else key.group is None
    return is_group and is_number(key.at) and abs(key.at) <= MAX_SCORE and is_id


class PartitionPlaces:
    """The places of a partition."""

    def __init__(self, connections: Connections | LoopReader, tag: str, now: int) -> None:
        """Read what every search needs: which limiters are held."""
        self._connections = connections
        self._tag = tag
        self._now = now
        self.lanes = LaneList(connections, tag)
        self._running: list[tuple[int, bytes]] | None = None
        defaults = Defaults(connections.command("HGETALL", f"{tag}:limit_defaults"))
        self._held = limit_states.Held(connections.command("HGETALL", f"{tag}:limiters"), defaults)

    def status(self, job: Job, lane: int, stuck_after: float) -> Status:  # noqa: ARG002 - a job knows where it stands
        """Return the status of a job; one that runs for `stuck_after` seconds is stuck."""
        return status_of(job, self._now, held=self._is_held(job), stuck_after=stuck_after)

    def _is_held(self, job: LaneNames) -> bool:
        held, dependency, group = self._held, job.dependency, str(getattr(job, "group", ""))
        if dependency and (held.has("dependency", dependency) or held.has("tenant_dependency", job.tenant, dependency)):
            return True
        return held.has("task", job.task) or bool(group and held.has("group", group))

    def by_ids(self, ids: Sequence[str]) -> Iterable[tuple[Job, int]]:
        """Return jobs by their ids."""
        return ((self._job(one), 0) for one in self._stored(list(map(id_to_bytes, ids))))

    def _job(self, stored: StoredJob) -> Job:
        """Return a job; when it is due or ended is also known where its record cannot be read."""
        job = stored.job()
        if job.cause is None or unreadable_record(job) is None:
            return job
        if job.state == "waiting":
            due_at = self._time_in(f"delayed:{job.queue}\0{_DELAYS[job.waiting_for]}", stored.id)
            return job if due_at is None else replace(job, due_at=due_at)
        return (
            replace(job, finished_at=self._time_in(f"{job.state}:{job.queue}", stored.id))
            if job.state in _ENDED
            else job
        )

    def _time_in(self, key: str, raw: bytes) -> int | None:
        """Return the time of a job in a sorted set; None if it is not there."""
        time = self._connections.command("ZSCORE", f"{self._tag}:{key}", raw)
        return None if time is None else int(float(time))

    def step(self, place: Place, wanted: Wanted, after: PlaceKey | None, most: int) -> Step:
        """Return the next jobs of a place after a key."""
        match place:
            case "running":
                return self._running_step(wanted, after, most)
            case "ready":
                return self._ready_step(wanted, after, most)
            case "delayed":
                return self._range_step(self._delayed_sets(wanted), wanted, after, most)
            case "ended":
                return self._range_step(self._ended_sets(wanted.filter), wanted, after, most)
            case "succeeded":
                return self._range_step(self._succeeded_sets(wanted.filter), wanted, after, most)

    def _running_step(self, wanted: Wanted, after: PlaceKey | None, most: int) -> Step:
        if self._running is None:
            found = self._connections.read("running_keys", self._tag, wanted.filter.session)
            self._running = [(int(one.at), one.id) for one in rows(LeasedKey, found)]
        start = _position(after, newest=wanted.is_newest)
        beyond = (key for key in self._running if (key < start if wanted.is_newest else key > start))
        left = (nlargest if wanted.is_newest else nsmallest)(most + 1, beyond)
        return self._candidates(left[:most], None, wanted.filter, has_more=len(left) > most, script="find_running")

    def _range_step(self, sets: Sequence[_Set], wanted: Wanted, after: PlaceKey | None, most: int) -> Step:
        if not sets:
            return Step((), None)
        at, raw = _position(after, newest=wanted.is_newest)
        reply = self._connections.read("range_keys", self._tag, _encode(sets), at, raw, most, int(wanted.is_newest))
        keys = [(int(at), raw) for at, raw in pairs(reply[1:])]
        return self._candidates(keys, None, wanted.filter, has_more=bool(reply[0]))

    def _candidates(
        self,
        keys: Sequence[tuple[int, bytes]],
        group: LaneGroup | None,
        wanted: Filter,
        *,
        has_more: bool,
        script: str = "find_by_ids",
    ) -> Step:
        """Read the jobs of keys, but for those whose id says that they do not match."""
        ids = [raw[:ID_BYTES] for _, raw in keys]
        likely = [raw for raw in ids if has_part(raw.hex(), wanted.id_parts)]
        found = {one.id: self._job(one) for one in self._stored(likely, script)}
        candidates = []
        for (at, entry), raw in zip(keys, ids, strict=True):
            job = found.get(raw)
            if len(entry) > ID_BYTES and job is not None and entry != entry_of(raw, job.version):
                job = None  # a leftover in its lane
            candidates.append(Candidate(PlaceKey(group, at, raw.hex()), job))
        return Step(candidates, candidates[-1].key if candidates and has_more else None)

    def _stored(self, ids: Sequence[bytes], script: str = "find_by_ids") -> Iterator[StoredJob]:
        for start in range(0, len(ids), MAX_JOBS_PER_PAGE):
            joined = b"".join(ids[start : start + MAX_JOBS_PER_PAGE])
            yield from rows(StoredJob, self._connections.read(script, self._tag, joined))

    def _queues(self, wanted: Filter) -> Sequence[str]:
        if wanted.queues:
            return wanted.queues
        return sorted(name.decode() for name in self._connections.command("HKEYS", f"{self._tag}:queues"))

    def _delayed_sets(self, wanted: Wanted) -> list[_Set]:
        sets: list[_Set] = []
        tried = tried_list(wanted.filter)
        for wait, status in _DELAYED.items():
            due = delayed_range(wanted.filter, status, wanted.now)
            if due is not None and tried is not None and status != "scheduled":
                field, names = tried
                sets += [_set_of(f"delayed_by:{wait}{_LETTERS[field]}{name}", due) for name in names]
            elif due is not None:
                sets += [_set_of(f"delayed:{queue}\0{wait}", due) for queue in self._queues(wanted.filter)]
        return sets

    @staticmethod
    def _ended_sets(wanted: Filter) -> list[_Set]:
        ended = wanted.ended or Range()
        keys = (
            f"{one.status}:{one.names[0]}"
            if one.field == "queue"
            else f"{one.status}_by:{_LETTERS[one.field]}{_SEPARATOR.join(one.names)}"
            for one in ended_lists(wanted)
        )
        return [_set_of(key, ended) for key in keys]

    def _succeeded_sets(self, wanted: Filter) -> list[_Set]:
        ended = wanted.ended or Range()
        return [_set_of(f"succeeded:{queue}", ended) for queue in self._queues(wanted)]

    def _ready_step(self, wanted: Wanted, after: PlaceKey | None, most: int) -> Step:
        """Merge the ready jobs of the lanes that match; beyond so many lanes, group by group."""
        start = None if after is None or after.at < 0 else after
        asked = ALL_LANES if after is None or after.group is None else after.group
        lanes, group = self._group(wanted.filter, asked, MAX_MERGED_LANES if start is None else MAX_GROWN_LANES)
        at, raw = _position(start, newest=wanted.is_newest)
        step = Step((), None)
        if lanes:
            arguments = (_encode(lanes), at, raw, most, int(wanted.is_newest))
            reply = self._connections.read("lane_keys", self._tag, *arguments)
            keys = [(int(at), entry) for at, entry in pairs(reply[1:])]
            step = self._candidates(keys, group, wanted.filter, has_more=bool(reply[0]))
        if step.resume is None and group.end:
            return Step(step.candidates, PlaceKey(LaneGroup(group.end, ""), -1, ""))
        return step

    def _group(self, wanted: Filter, asked: LaneGroup, most: int) -> tuple[list[str], LaneGroup]:
        """Return lanes of a group whose jobs may match, and the group, cut where these are too many."""
        statuses = possible_statuses(wanted)
        if "ready" not in statuses and not self._held.has_any:
            return [], ALL_LANES
        chosen: list[str] = []
        first, read = asked.first, 0
        while read < MAX_LANES_READ and len(chosen) < most:
            lanes = self.lanes.first_of(wanted, LaneGroup(first, asked.end), MAX_MERGED_LANES + 1)
            for number, lane in enumerate(lanes[:MAX_MERGED_LANES]):
                if len(chosen) == most:
                    return chosen, LaneGroup(asked.first, bound_between(lanes[number - 1].name, lane.name))
                status: Status = "parked" if self._is_held(lane) else "ready"
                if status in statuses and is_in(lane, wanted):
                    chosen.append(lane.name)
            if len(lanes) <= MAX_MERGED_LANES:
                return chosen, asked
            first, read = bound_between(lanes[-2].name, lanes[-1].name), read + MAX_MERGED_LANES
        return chosen, LaneGroup(asked.first, first)


def _position(after: PlaceKey | None, *, newest: bool) -> tuple[int, bytes]:
    """Return the time and the id after which keys go on."""
    if after is None:
        return (MAX_SCORE, b"\xff" * ID_BYTES) if newest else (-1, b"")
    return after.at, bytes.fromhex(str(after.id))


def _set_of(key: str, times: Range) -> _Set:
    return key, times.since or 0, MAX_SCORE if times.until is None else min(times.until, MAX_SCORE)
