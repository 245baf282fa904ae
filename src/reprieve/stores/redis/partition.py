"""A partition: a whole store under one hash tag. Every operation on it is one script, and so atomic."""

import asyncio
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import UNSET

from reprieve.core import change as changes_of
from reprieve.core.change import Change
from reprieve.core.duration import milliseconds
from reprieve.core.events import Event
from reprieve.core.fairness.settings import DEFAULTS
from reprieve.core.ids import id_from_bytes, id_to_bytes
from reprieve.core.job import Job
from reprieve.core.move import Return
from reprieve.errors import SessionDead, StaleCall, StoreError
from reprieve.rng import bits
from reprieve.stores import search
from reprieve.stores.protocol import (
    Annotation,
    ChangeResult,
    Claim,
    Claimed,
    Entry,
    Filter,
    Heartbeat,
    LimitState,
    LimitUpdate,
    Page,
    Pruned,
    Retention,
    Subject,
    Tally,
)
from reprieve.stores.redis import enqueue, limit_states, settle
from reprieve.stores.redis.ear import Place, place_of
from reprieve.stores.redis.enqueue import Crossing
from reprieve.stores.redis.find import SHAPES, Look
from reprieve.stores.redis.link import Argument, Links
from reprieve.stores.redis.records import pack_wish, unpack_event, unpack_running
from reprieve.stores.redis.tour import MOST_VISITS

Point: TypeAlias = Literal["before", "after"]

MOST_CHANGES = 250
"""Changes of one call of a script."""

MOST_ASKED = 1_000
"""Jobs that one call of a script is asked about."""

UNKNOWN, REMEMBERED, HERE = 0, 1, 2
"""What a partition knows of a job: nothing, that it was here, or all."""

_encode = msgspec.msgpack.Encoder().encode
_SETTINGS = msgspec.Raw(_encode(msgspec.structs.asdict(DEFAULTS)))
LETTERS: dict[Subject, str] = {"queue": "q", "tenant": "t", "task": "k", "dependency": "d", "group": "g"}
_PAUSES = {"schedule": 1, "retry": 2}


class Grown(Exception):
    """There is more than one partition by now, so keys are kept elsewhere; nothing was done."""


class State(NamedTuple):
    """What is wanted of all partitions, as one of them is told of it: see update_limits.lua."""

    how: Literal["note", "change", "next", "whole"]
    number: int
    seen: int = 0
    ruled: int = -1
    fields: tuple[str | bytes, ...] = ()


class Overtaken(StoreError):
    """Somebody else was first, or a state is missing: look again."""


class Hand:
    """What a session has in hand, as this process knows, and the number of the last call that changed it."""

    __slots__ = ("ids", "number")

    def __init__(self) -> None:
        """Begin with nothing."""
        self.ids: set[bytes] = set()
        self.number = 0


class Partition:
    """One partition of a store."""

    def __init__(self, links: Links, number: int) -> None:
        """Take the links; the number is part of the hash tag, and of the ids of the jobs in it."""
        self.number = number
        self.tag = links.tag(number)
        self._links = links
        self._heard: dict[str, Place] = {}
        self._hands: dict[str, Hand] = {}
        self._fault: Point | None = None

    def inject(self, point: Point) -> None:
        """Make the next write fail before it is sent, or after it was answered."""
        self._fault = point

    async def knows(self, ids: Sequence[str]) -> list[int]:
        """Return of each job whether it is here, whatever has become of it, or was and is remembered."""
        known: list[int] = []
        for start in range(0, len(ids), MOST_ASKED):
            some = b"".join(map(id_to_bytes, ids[start : start + MOST_ASKED]))
            known += await self._links.here().run("has", self.tag, some)
        return known

    async def quota(
        self, word: str, now: int, epoch: int = 0, items: Sequence[tuple[object, ...]] = (), number: int = 0
    ) -> list[Any] | None:
        """Read, freeze or grant shares; None when somebody else was later than we."""
        answer = await self._write("quota", _encode((word, now, epoch, items, number)))
        return None if answer[0] == b"stale" else list(answer[1:])

    async def _write(self, name: str, *arguments: Argument) -> Any:  # noqa: ANN401 - as the script answers
        link = self._links.here()
        fault, self._fault = self._fault, None
        if fault == "before":
            message = "this write was to fail before it is sent"
            raise StoreError(message)
        answer = await link.run(name, self.tag, *arguments)
        if fault == "after":
            message = "the reply to this write was to be lost"
            raise StoreError(message)
        return answer

    async def enqueue(self, jobs: Sequence[Job], now: int, *, has_keys: bool = True) -> list[str]:
        """Store new jobs, some at a time. Raises `Grown` if keys are no longer to be kept here."""
        ids = [job.id for job in jobs]
        for start in range(0, len(jobs), enqueue.MOST):
            some = jobs[start : start + enqueue.MOST]
            taken = await self._write("enqueue", *enqueue.encode(some, now, has_keys=has_keys))
            if taken == [b"grown"]:
                raise Grown
            _take_over(ids, taken, start)
        return ids

    def enqueue_here(self, job: Job, now: int) -> str | None:
        """Store a new job from the calling thread; None if that takes more than one trip, or did not succeed."""
        if self._fault is not None:
            return None
        taken = self._links.at_once("enqueue", self.tag, *enqueue.encode((job,), now))
        if taken is None or taken == [b"grown"]:
            return None
        ids = [job.id]
        _take_over(ids, taken)
        return ids[0]

    async def landed(self, ids: Sequence[str]) -> list[bool]:
        """Return of each job whether it has come here out of an outbox, and is still remembered."""
        raw = map(id_to_bytes, ids)
        return [until is not None for until in await self._links.here().command("ZMSCORE", f"{self.tag}:o", *raw)]

    async def deliver(
        self, jobs: Sequence[Job], now: int, crossing: Crossing, *, has_keys: bool
    ) -> tuple[int, list[str] | None]:
        """Store jobs out of an outbox, no more than one call takes; answer the server's clock, and the ids.

        None instead of ids says that nothing was done: they were taken too long ago.
        """
        arguments = enqueue.encode(jobs, now, has_keys=has_keys, crossing=crossing)
        word, *rest = await self._write("enqueue", *arguments)
        if word == b"grown":
            raise Grown
        clock, *taken = rest
        if word == b"late":
            return int(clock), None
        ids = [job.id for job in jobs]
        _take_over(ids, taken)
        return int(clock), ids

    async def claim(self, request: Claim) -> Claimed:
        """Settle and claim."""
        head = (request.now, request.session, request.number, request.limit, request.queues, _SETTINGS)
        changes = settle.encode(request.changes, request.session, request.now)
        word, *answer = await self._write("work", _encode(head), *changes)
        if word == b"dead":
            self._heard.pop(request.session, None)
            self._hands.pop(request.session, None)
            message = f"session {request.session!r} is not open, or dead: its time was up, and others have its jobs"
            raise SessionDead(message)
        if word == b"stale":
            number, last = request.number // MOST_VISITS, int(answer[0]) // MOST_VISITS
            message = f"call {number} of session {request.session!r} comes after call {last}"
            raise StaleCall(message)
        letters, next_at, bell, before, ids, *records = answer
        self._heard[request.session] = place_of(bell)
        await self._compare_hands(request, int(before), b"".join(records[::3]) if word == b"again" else ids)
        if word == b"again":
            jobs = _running(records, request.session)
        else:
            jobs = [
                unpack_running(ids[16 * place : 16 * place + 16], record, request.session, request.now)
                for place, record in enumerate(records)
            ]
        return Claimed(
            results=tuple(settle.decode(letters)), jobs=tuple(jobs), next_at=int(next_at) if next_at else None
        )

    async def _compare_hands(self, request: Claim, before: int, leased: bytes) -> None:
        """Keep count of what a session holds, and look whether the server agrees if it has lost a call of the session.

        A server that crashed, or failed over, may have forgotten that jobs were settled. Nobody runs them, and their
        session lives, so nobody would ever take them back.
        """
        hand = self._hands.setdefault(request.session, Hand())
        hand.ids.difference_update(
            id_to_bytes(change.job.id) for change in request.changes if change.session == request.session
        )
        hand.ids.update(leased[start : start + 16] for start in range(0, len(leased), 16))
        has_forgotten = before < hand.number
        hand.number = request.number if request.changes or leased else before
        if not has_forgotten:
            return
        held = await self._links.here().command("HKEYS", f"{self.tag}:y:{request.session}")
        strangers = b"".join(raw for raw in held if raw not in hand.ids)
        if strangers:
            found = await self._links.here().run("look", self.tag, strangers)
            lost = [
                changes_of.settle(unpack_running(raw, record, session.decode(), int(at), wish), Return(), request.now)
                for raw, record, how, session, at, wish in _rows(found, 6)
                if how == b"r"
            ]
            await self.apply(lost, request.now)

    async def apply(self, changes: Sequence[Change], now: int) -> list[ChangeResult]:
        """Carry out changes that no session makes."""
        answers: list[ChangeResult] = []
        for start in range(0, max(1, len(changes)), MOST_CHANGES):
            some = settle.encode(changes[start : start + MOST_CHANGES], "", now)
            answer = await self._write("work", _encode((now, "", 0, 0, (), _SETTINGS)), *some)
            answers += settle.decode(answer[1])
        return answers

    async def heartbeat(self, heartbeat: Heartbeat) -> bool:
        """Keep a session alive, or open it."""
        until = heartbeat.now + milliseconds(heartbeat.lease)
        head = _encode((heartbeat.session, until, heartbeat.slots, heartbeat.is_new, heartbeat.lease <= 0))
        is_alive = bool(await self._write("heartbeat", head))
        if not is_alive or heartbeat.lease <= 0:
            self._heard.pop(heartbeat.session, None)
            self._hands.pop(heartbeat.session, None)
        return is_alive

    async def recover(self, now: int, limit: int) -> list[Job]:
        """Declare the dead, and answer what they hold."""
        found = await self._write("recover", now, limit)
        return [
            unpack_running(raw, record, session.decode(), int(at), wish)
            for session, raw, at, wish, record in _rows(found, 5)
        ]

    async def annotate(self, annotations: Sequence[Annotation]) -> list[bool]:
        """Request a cancel or note progress."""
        heads = tuple((annotation.session, annotation.progress is not None) for annotation in annotations)
        ids = b"".join(id_to_bytes(annotation.job_id) for annotation in annotations)
        parts = (
            part for annotation in annotations for part in (pack_wish(annotation.cancel), annotation.progress or b"")
        )
        return [bool(answer) for answer in await self._write("annotate", _encode(heads), ids, *parts)]

    async def progress(self, job_id: str) -> bytes | None:
        """Return the progress of a running job."""
        annotation = await self._links.here().command("HGET", f"{self.tag}:mk", id_to_bytes(job_id))
        start = 2 + int.from_bytes(annotation[:2], "big") if annotation else 0
        return bytes(annotation[start + 1 :]) if annotation and len(annotation) > start else None

    async def update_limits(self, updates: Sequence[LimitUpdate], now: int, state: State | None = None) -> None:
        """Change limiters, limits, weights and pauses. Raises `Overtaken`, and nothing was done."""
        await self._update_limits(updates, now, state, ("", "", 0, "", b"", b""))

    async def _update_limits(
        self, updates: Sequence[LimitUpdate], now: int, state: State | None, entry: tuple[Argument, ...]
    ) -> tuple[bytes, bytes]:
        head = _encode((now, tuple(map(_facts, updates)), state[:4] if state else False))
        word, version = await self._write("update_limits", head, *entry, *(state.fields if state else ()))
        if word == b"overtaken":
            message = "somebody else has just changed what is wanted of all partitions; repeat the call"
            raise Overtaken(message)
        return word, version

    async def compare_and_set(
        self,
        key: str,
        version: int,
        value: bytes | None,
        updates: Sequence[LimitUpdate],
        now: int,
        state: State | None = None,
    ) -> Entry | None:
        """Set or delete an entry if nobody was first, together with updates. Raises `Overtaken` as `update_limits`."""
        how = "delete" if value is None else "set"
        call = bits(64).to_bytes(8, "big")
        entry = ("entry", key, version, how, value or b"", call)
        word, newest = await self._update_limits(updates, now, state, entry)
        return Entry(key=key, version=int(newest), value=value or b"") if word == b"ok" else None

    async def prune(self, retention: Retention) -> Pruned:
        """Forget what has ended long enough ago."""
        now = retention.now
        head = (
            now,
            retention.succeeded,
            now - milliseconds(retention.succeeded_for),
            now - milliseconds(retention.cancelled_for),
            now - milliseconds(retention.events_for),
        )
        archived = b"".join(id_to_bytes(job.id) + job.version.to_bytes(4, "big") for job in retention.archived)
        succeeded, cancelled, dead, events, keys, results = await self._write("prune", _encode(head), archived)
        return Pruned(succeeded=succeeded, cancelled=cancelled, dead=dead, events=events, keys=keys, results=results)

    async def find(self, wanted: Filter, now: int, cursor: str, limit: int) -> Page:
        """Return jobs as they are, looked for in a thread: unpacking many of them takes time."""
        return await asyncio.to_thread(
            lambda: search.find(Look(self._links, self.tag, now), wanted, cursor, limit, SHAPES)
        )

    async def tally(self, by: Tally, wanted: Filter, now: int) -> dict[str, int]:
        """Count jobs by something."""
        return await asyncio.to_thread(lambda: search.tally(Look(self._links, self.tag, now), by, wanted))

    async def events(self, after: int, limit: int, job_id: str) -> tuple[int, list[tuple[int, Event]]]:
        """Return the server's time, and events in the order in which they happened."""
        raw = id_to_bytes(job_id) if job_id else b""
        time, *found = await self._links.here().run("told", self.tag, after, limit, raw)
        return time, [(int(place), unpack_event(raw, data)) for place, raw, data in _rows(found, 3)]

    async def result(self, job_id: str) -> bytes | None:
        """Return what a succeeded job returned."""
        found: bytes | None = await self._links.here().command("HGET", f"{self.tag}:rs", id_to_bytes(job_id))
        return found

    async def entries(self, prefix: str) -> list[Entry]:
        """Return the entries whose key begins so."""
        found = await self._links.here().command("HGETALL", f"{self.tag}:k")
        entries = (
            Entry(key=key.decode(), version=limit_states.version_of(value), value=value[16:])
            for key, value in found.items()
        )
        return sorted((entry for entry in entries if entry.key.startswith(prefix)), key=lambda entry: entry.key)

    async def limit_states(self, subject: Subject, queue: str) -> list[LimitState]:
        """Return what is known of every queue, tenant, task, dependency or group."""
        link = self._links.here()
        queues = await link.command("HGETALL", f"{self.tag}:q")
        if subject == "tenant":
            return limit_states.tenants(await link.command("HGETALL", f"{self.tag}:tn"), queues, queue)
        return limit_states.limiters(subject, await link.command("HGETALL", f"{self.tag}:g"), queues, queue)

    async def wait(self, queues: Sequence[str], at_most: float, session: str) -> bool:
        """Wait for the bell."""
        return await self._links.here().ear(self.tag).wait(queues, self._heard.get(session), at_most)


def _rows(parts: Sequence[Any], width: int) -> list[Sequence[Any]]:
    return [parts[start : start + width] for start in range(0, len(parts), width)]


def _take_over(ids: list[str], taken: Sequence[Any], start: int = 0) -> None:
    """Put the ids of those who have the keys in the place of others."""
    for number, holder in _rows(taken, 2):
        ids[start + number - 1] = id_from_bytes(holder)


def _running(parts: Sequence[Any], session: str) -> list[Job]:
    return [unpack_running(raw, record, session, int(at)) for raw, at, record in _rows(parts, 3)]


def _facts(update: LimitUpdate) -> tuple[object, ...]:
    r = update
    rate = None if r.rate is UNSET else r.rate
    return (
        LETTERS[r.subject],
        r.name,
        r.queue,
        r.permits is not UNSET,
        False if r.permits is UNSET or r.permits is None else r.permits,
        r.max_running is not UNSET,
        False if r.max_running is UNSET or r.max_running is None else r.max_running,
        r.rate is not UNSET,
        False if rate is None else rate.count,
        False if rate is None else rate.window,
        False if rate is None else rate.bucket,
        r.weight is not UNSET,
        1.0 if r.weight is UNSET else r.weight,
        r.pauses is not UNSET,
        0 if r.pauses is UNSET else sum(_PAUSES[pause] for pause in set(r.pauses)),
    )
