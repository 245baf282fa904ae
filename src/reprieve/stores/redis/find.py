"""Finding jobs of a partition, a page at a time, and counting them. Runs in threads, and only reads."""

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from reprieve.core.ids import id_to_bytes
from reprieve.core.job import Job
from reprieve.core.status import Status, status_of
from reprieve.stores.protocol import Filter, Tally
from reprieve.stores.record import COUNTERS
from reprieve.stores.redis import limit_states
from reprieve.stores.redis.link import Links
from reprieve.stores.redis.records import (
    place_of,
    unpack,
    unpack_running,
    unpack_succeeded,
)
from reprieve.stores.search import Key, LaneNames, Shapes, Source, Step, has_part, is_in, is_number, name_of

PAGE = 200
"""Most jobs that one script reads."""

_COUNTERS = ("ready", "scheduled", "retrying", "parked", "dead", "cancelled")
_ENDED: dict[str, Status] = {"x": "dead", "c": "cancelled"}


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


class Look:
    """One search of a partition."""

    def __init__(self, links: Links, tag: str, now: int) -> None:
        """Read which limiters are held."""
        self._links = links
        self._tag = tag
        self._now = now
        self._held = limit_states.held(links.command("HGETALL", f"{tag}:g"))

    def status(self, job: Job, lane: int = 0) -> Status:  # noqa: ARG002 - a job names its lane
        """Return the status of a job."""
        return status_of(job, self._now, held=self._is_held(job))

    def _is_held(self, job: LaneNames) -> bool:
        if not self._held:
            return False
        limiters = {f"k{job.task}", f"d{job.dependency}", f"g{getattr(job, 'group', '')}"}
        return not self._held.isdisjoint(limiters)

    def by_ids(self, ids: Sequence[str]) -> Iterable[tuple[Job, int]]:
        """Return jobs by their ids."""
        for start in range(0, len(ids), PAGE):
            raw = b"".join(map(id_to_bytes, ids[start : start + PAGE]))
            yield from ((job, 0) for _, job in _jobs(self._links.read("look", self._tag, raw)))

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
            following, *found = self._links.read("scan", self._tag, cursor, PAGE)
            for raw, job in _jobs(found, parts):
                if raw > last and job.state != "succeeded":
                    yield [cursor, raw.hex()], job, 0
            cursor, last = following.decode(), b""
            if cursor == "0":
                return
            yield [cursor, ""], None, 0

    def _running(self, after: Sequence[Key], only: str = "") -> Iterator[Step]:
        session, last = (str(after[0]), bytes.fromhex(str(after[1]))) if after else ("", b"")
        while found := self._links.read("held", self._tag, session, last, PAGE, only):
            for raw, job in _jobs(found):
                session, last = job.session or "", raw
                yield [session, raw.hex()], job, 0

    def _queues(self, wanted: Filter) -> list[str]:
        if wanted.queue:
            return [wanted.queue]
        return sorted(name.decode() for name in self._links.command("HKEYS", f"{self._tag}:q"))

    def _ended(self, after: Sequence[Key], wanted: Filter) -> Iterator[Step]:
        kinds = [kind for kind, status in _ENDED.items() if not wanted.statuses or status in wanted.statuses]
        if wanted.death is not None:
            kinds = ["x"]
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
            for at, raw, job in self._in_order("ok", queue, place):
                yield [queue, at, raw.hex()], job, 0

    def _in_order(self, kind: str, queue: str, place: Sequence[Key]) -> Iterator[tuple[int, bytes, Job]]:
        at, last = int(place[0]), bytes.fromhex(str(place[1]))
        while found := self._links.read("ended", self._tag, kind, queue, at, last, PAGE):
            for start in range(0, len(found), FIELDS + 1):
                at = int(found[start])
                for raw, job in _jobs(found[start + 1 : start + 1 + FIELDS]):
                    last = raw
                    yield at, raw, job

    def counts(self) -> Iterator[tuple[Status, LaneNames, int]]:
        """Return how many jobs of each lane have which status, succeeded ones left out."""
        lanes, _, queues = self._counted()
        due = self._due(queues)
        for lane, counters in lanes.items():
            place, number = place_of(lane), Counter(dict(zip(_COUNTERS, counters, strict=False)))
            # Jobs that were enqueued after the counters were read are not in them.
            late = due[lane] & number
            yield ("parked" if self._is_held(place) else "ready"), place, number["ready"] + late.total()
            yield "scheduled", place, number["scheduled"] - late["scheduled"]
            yield "retrying", place, number["retrying"] - late["retrying"]
            yield "parked", place, number["parked"] - late["parked"]
            yield "dead", place, number["dead"]
            yield "cancelled", place, number["cancelled"]
        for _, job, _ in self._running(()):
            if job is not None:
                yield self.status(job), job, 1

    def _counted(self) -> tuple[dict[bytes, list[int]], dict[str, int], list[tuple[bytes, int]]]:
        parts: Iterator[Any] = iter(self._links.read("counts", self._tag, self._now))
        lanes = {next(parts): next(parts) for _ in range(next(parts))}
        queues = {next(parts).decode(): next(parts) for _ in range(next(parts))}
        return lanes, queues, [(queue, next(parts)) for queue in parts]

    def _due(self, queues: Iterable[tuple[bytes, int]]) -> dict[bytes, Counter[str]]:
        """Count the due jobs of these queues and waits that were not promoted yet, by lane."""
        due: dict[bytes, Counter[str]] = defaultdict(Counter)
        for queue, wait in queues:
            for skip in itertools.count(step=PAGE):
                found = self._links.read("due", self._tag, self._now, queue, wait, skip, PAGE)
                for lane, kind in zip(found[::2], found[1::2], strict=True):
                    due[lane][COUNTERS[kind or 1]] += 1
                if len(found) < 2 * PAGE:
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


class FoundJob(NamedTuple):
    """A job as scripts return it, in so many parts."""

    id: bytes
    record: bytes
    kind: bytes
    """`r`: it runs, `s`: it succeeded."""
    session: bytes
    at: bytes
    """When it was leased or succeeded."""
    cancel: bytes
    """The packed cancel request, if any."""

    def unpack(self) -> Job:
        """Return the job."""
        if self.kind == b"r":
            return unpack_running(self.id, self.record, self.session.decode(), int(self.at), self.cancel)
        if self.kind == b"s":
            return unpack_succeeded(self.id, self.record, int(self.at))
        return unpack(self.id, self.record)


FIELDS = len(FoundJob._fields)


def _jobs(found: Sequence[Any], parts: Sequence[str] = ()) -> Iterator[tuple[bytes, Job]]:
    """Return the jobs that a script found, each with its id in bytes, unless it has none of these parts."""
    for start in range(0, len(found), FIELDS):
        one = FoundJob._make(found[start : start + FIELDS])
        if has_part(one.id.hex(), parts):
            yield one.id, one.unpack()
