"""Search: jobs by what is known of them, and how many there are. In threads, a page at a time."""

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from reprieve.core.ids import id_to_bytes
from reprieve.core.job import Job, Wait
from reprieve.core.status import Status, status_of
from reprieve.core.unreadable import unreadable_record
from reprieve.stores.protocol import Filter, Tally
from reprieve.stores.record import LANE_COUNTERS
from reprieve.stores.redis import limit_states
from reprieve.stores.redis.connections import Connections
from reprieve.stores.redis.limit_defaults import Defaults
from reprieve.stores.redis.loop_reader import LoopReader
from reprieve.stores.redis.records import lane_model
from reprieve.stores.redis.replies import StoredJob, pairs, read_finished, rows
from reprieve.stores.search import Key, LaneNames, Shapes, Source, Step, has_part, is_in, is_number, name_of

MAX_JOBS_PER_PAGE = 200
"""Jobs that one script reads."""

_COUNTERS = ("ready", "scheduled", "retrying", "parked", "dead", "cancelled")
_ENDED: tuple[Status, ...] = ("dead", "cancelled")
_DELAYS: Mapping[Wait, int] = {"turn": 1, "schedule": 1, "retry": 2, "gate": 3, "budget": 3}
"""The sorted sets of jobs that are due later, as in waiting.lua."""


def _is_hex(part: Key) -> bool:
    return isinstance(part, str) and all(letter in "0123456789abcdef" for letter in part) and len(part) % 2 == 0


def _is_digits(part: Key) -> bool:
    return isinstance(part, str) and part.isdecimal() and part.isascii()


def _is_text(part: Key) -> bool:
    return isinstance(part, str)


SHAPES: Shapes = {
    "living": (_is_digits, _is_hex),
    "running": (_is_text, _is_hex),
    "ended": (_is_text, _is_text, is_number, _is_hex),
    "succeeded": (_is_text, is_number, _is_hex),
}


class PartitionSearch:
    """One search of a partition."""

    def __init__(self, connections: Connections | LoopReader, tag: str, now: int) -> None:
        """Read what every search needs: which limiters are held."""
        self._connections = connections
        self._tag = tag
        self._now = now
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
        for start in range(0, len(ids), MAX_JOBS_PER_PAGE):
            raw = b"".join(map(id_to_bytes, ids[start : start + MAX_JOBS_PER_PAGE]))
            found = self._connections.read("find_by_ids", self._tag, raw)
            yield from ((self._job(one), 0) for one in rows(StoredJob, found))

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

    def scan(self, source: Source, after: Sequence[Key], wanted: Filter) -> Iterator[Step]:
        """Return the jobs of one source after a key."""
        match source:
            case "living":
                return self._living(after, wanted.id_parts)
            case "running":
                return self._running(after, wanted.session)
            case "ended":
                return self._ended(after, wanted)
            case "succeeded":
                return self._succeeded(after, wanted)

    def _living(self, after: Sequence[Key], parts: Sequence[str]) -> Iterator[Step]:
        cursor, last = (str(after[0]), bytes.fromhex(str(after[1]))) if after else ("0", b"")
        while True:
            following, *found = self._connections.read("scan_jobs", self._tag, cursor, MAX_JOBS_PER_PAGE)
            for one in rows(StoredJob, found):
                if one.id > last and has_part(one.id.hex(), parts) and one.state != b"succeeded":
                    yield [cursor, one.id.hex()], self._job(one), 0
            cursor, last = following.decode(), b""
            if cursor == "0":
                return
            yield [cursor, ""], None, 0

    def _running(self, after: Sequence[Key], only: str = "") -> Iterator[Step]:
        session, last = (str(after[0]), bytes.fromhex(str(after[1]))) if after else ("", b"")
        while found := self._connections.read("find_running", self._tag, session, last, MAX_JOBS_PER_PAGE, only):
            for one in rows(StoredJob, found):
                session, last = one.session.decode(), one.id
                yield [session, last.hex()], one.job(), 0

    def _queues(self, wanted: Filter) -> list[str]:
        if wanted.queue:
            return [wanted.queue]
        return sorted(name.decode() for name in self._connections.command("HKEYS", f"{self._tag}:queues"))

    def _ended(self, after: Sequence[Key], wanted: Filter) -> Iterator[Step]:
        kinds = [status for status in _ENDED if not wanted.statuses or status in wanted.statuses]
        if wanted.death is not None:
            kinds = ["dead"]
        for queue in self._queues(wanted):
            for kind in kinds:
                place: list[Key] = [0, ""]
                if after and (queue, kind) < (str(after[0]), str(after[1])):
                    continue
                if after and (queue, kind) == (after[0], after[1]):
                    place = list(after[2:])
                for at, raw, job in self._in_order(kind, queue, place):
                    yield [queue, kind, at, raw.hex()], job, 0

    def _succeeded(self, after: Sequence[Key], wanted: Filter) -> Iterator[Step]:
        for queue in self._queues(wanted):
            if after and queue < str(after[0]):
                continue
            place: list[Key] = list(after[1:]) if after and queue == after[0] else [wanted.finished_since or 0, ""]
            for at, raw, job in self._in_order("succeeded", queue, place):
                yield [queue, at, raw.hex()], job, 0

    def _in_order(self, kind: str, queue: str, place: Sequence[Key]) -> Iterator[tuple[int, bytes, Job]]:
        at, last = int(place[0]), bytes.fromhex(str(place[1]))
        while found := self._connections.read("find_finished", self._tag, kind, queue, at, last, MAX_JOBS_PER_PAGE):
            for at, stored in read_finished(found):
                last = stored.id
                yield at, last, self._job(stored)

    def counts(self, stuck_after: float) -> Iterator[tuple[Status, LaneNames, int]]:
        """Return status, lane and number of all jobs that have not succeeded."""
        lanes, _, queues = self._counted()
        due = self._due(queues)
        for lane, counters in lanes.items():
            place, number = lane_model(lane), Counter(dict(zip(_COUNTERS, counters, strict=False)))
            # Jobs that came after the counters were read are not in them.
            late = due[lane] & number
            yield ("parked" if self._is_held(place) else "ready"), place, number["ready"] + late.total()
            yield "scheduled", place, number["scheduled"] - late["scheduled"]
            yield "retrying", place, number["retrying"] - late["retrying"]
            yield "parked", place, number["parked"] - late["parked"]
            yield "dead", place, number["dead"]
            yield "cancelled", place, number["cancelled"]
        for _, job, _ in self._running(()):
            if job is not None:
                yield self.status(job, 0, stuck_after), job, 1

    def _counted(self) -> tuple[dict[bytes, list[int]], dict[str, int], list[tuple[bytes, int]]]:
        lanes, queues, due = self._connections.read("count_jobs", self._tag, self._now)
        return dict(pairs(lanes)), {queue.decode(): count for queue, count in pairs(queues)}, list(pairs(due))

    def _due(self, queues: Iterable[tuple[bytes, int]]) -> dict[bytes, Counter[str]]:
        """Count the due jobs of these queues and waits that were not promoted yet, by lane."""
        due: dict[bytes, Counter[str]] = defaultdict(Counter)
        for queue, wait in queues:
            for skip in itertools.count(step=MAX_JOBS_PER_PAGE):
                found = self._connections.read("find_due", self._tag, self._now, queue, wait, skip, MAX_JOBS_PER_PAGE)
                for lane, kind in pairs(found):
                    due[lane][LANE_COUNTERS[kind or 1]] += 1
                if len(found) < 2 * MAX_JOBS_PER_PAGE:
                    break
        return due

    def succeeded(self, by: Tally, wanted: Filter) -> Counter[str]:
        """Count the succeeded jobs that match a filter by one of their fields."""
        counts: Counter[str] = Counter()
        if by in ("status", "queue") and wanted.tenant is None and not wanted.task and wanted.dependency is None:
            for queue, number in self._counted()[1].items():
                if wanted.queue in ("", queue):
                    counts["succeeded" if by == "status" else queue] += number
            return counts
        for _, job, _ in self._succeeded((), wanted):
            if job is not None and is_in(job, wanted):
                counts[name_of(by, "succeeded", job)] += 1
        return counts
