"""Quotas: limits that hold for the whole fleet, leased in shares to partitions.

What is wanted is written down in the first partition, as a state whose number only grows, and every partition is told
one state after the other: whoever was left behind by one who died is told all by the next.

The shares of a limit never add up to more than the limit, what is under way included. Once a second somebody moves
shares to where they are wanted: all partitions are frozen at what they have under way, then the rest is dealt out anew.
Whoever was frozen by one who died is dealt with by the next.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, Literal, TypeAlias, TypeVar, get_args

import msgspec
import structlog
from msgspec import UNSET
from msgspec.structs import replace

from reprieve.core.rate import Rate
from reprieve.errors import StoreError
from reprieve.stores.protocol import LimitState, LimitUpdate, Subject
from reprieve.stores.redis.link import Links
from reprieve.stores.redis.partition import LETTERS, Overtaken, Partition, State
from reprieve.stores.redis.together import together

EVERY: Final = 1.0
"""Seconds from one deal to the next."""


Pause: TypeAlias = Literal["schedule", "retry"]
Name: TypeAlias = tuple[Subject, str, str]
T = TypeVar("T")

log = structlog.get_logger("reprieve")


class Want(msgspec.Struct, array_like=True, frozen=True):
    """What somebody wants for the whole fleet, of one queue, tenant, task, dependency or group."""

    subject: Subject
    name: str
    queue: str
    permits: int | None = None
    max_running: int | None = None
    rate: Rate | None = None
    weight: float = 1.0
    pauses: tuple[Pause, ...] = ()

    @property
    def update(self) -> LimitUpdate:
        """What a partition that knows nothing of it is told."""
        told = LimitUpdate(
            subject=self.subject,
            name=self.name,
            queue=self.queue,
            permits=self.permits,
            max_running=self.max_running,
            rate=self.rate,
        )
        if self.subject == "tenant":
            return replace(told, weight=self.weight)
        return replace(told, pauses=self.pauses) if self.subject == "queue" else told

    @property
    def is_shared(self) -> bool:
        """Whether there is anything to share out."""
        return bool(self.permits or self.max_running or self.rate)


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Want).decode


class Share(msgspec.Struct, array_like=True, frozen=True):
    """What a partition has of one limit, and wants."""

    running: int
    granted: int
    wants: bool
    permits: int
    max_running: int
    count: int


def deal(total: int, used: Sequence[int], wanting: Sequence[bool], favoured: int = -1, kept: int = 0) -> list[int]:
    """Deal out a limit: everybody keeps what is under way, and the rest goes to those who want more, or to all.

    The favoured partition keeps what it has even unused, and is served first: a job goes through several limits, and
    whoever has some must not lose them while it waits for the others.
    """
    shares = list(used)
    rest = total - sum(used)
    if rest < 0:
        # More is under way than may be: nobody begins anything until enough has ended.
        return [0] * len(shares)
    if favoured >= 0:
        extra = min(rest, max(0, kept - shares[favoured]))
        shares[favoured] += extra
        rest -= extra
    takers = [place for place, wants in enumerate(wanting) if wants] or list(range(len(used)))
    takers.sort(key=lambda place: place != favoured)
    for number, place in enumerate(takers):
        shares[place] += rest // len(takers) + (number < rest % len(takers))
    return shares


class Quotas:
    """The fleet's limits."""

    def __init__(self, links: Links) -> None:
        """Deal at the first look."""
        self._links = links
        self._dealt_at: float | None = None
        self._is_failing = False
        self.is_needed = False
        """Whether anything is shared, as far as this process knows."""

    @property
    def _key(self) -> str:
        return f"{self._links.tag(0)}:wanted_limits"

    def _meta(self, number: int) -> str:
        return f"{self._links.tag(number)}:meta"

    async def wants(self) -> dict[Name, Want]:
        """Return what is wanted for the whole fleet."""
        found = await self._links.here().command("HGETALL", self._key)
        wants = (_decode(data) for name, data in found.items() if name)
        return {(want.subject, want.name, want.queue): want for want in wants}

    async def _state(self) -> tuple[int, dict[Name, Want]]:
        """Return the number of a state, and what is wanted, which may be newer: whoever acts on it is overtaken."""
        number = int(await self._links.here().command("HGET", self._meta(0), "wanted_state") or 0)
        return number, await self.wants()

    async def adopt(self, first: Partition) -> None:
        """Write down what the only partition there was so far honours, before there are others."""
        link = self._links.here()
        while not await link.command("EXISTS", self._key):
            # Whoever knows of one partition only may change what it honours until this is written down.
            found = await link.command("HMGET", self._meta(0), "direct_updates", "wanted_state")
            ruled, number = (int(value or 0) for value in found)
            wants = [
                want
                for subject in get_args(Subject)
                for limit_state in await first.limit_states(subject, "")
                if (want := _honoured(limit_state)) != Want(subject, limit_state.name, limit_state.queue)
            ]
            with contextlib.suppress(Overtaken):
                await first.update_limits((), 0, State("record", number + 1, number, ruled, ("", "", *_fields(wants))))

    async def change(
        self,
        partitions: Sequence[Partition],
        updates: Sequence[LimitUpdate],
        now: int,
        write: Callable[[State], Awaitable[T]],
    ) -> T:
        """Write down what is wanted in one step with a write to the first partition, and tell the others.

        If the write answers None nothing was done.
        """
        first, *others = partitions
        await self.adopt(first)
        await self.remind(partitions, now)
        while True:
            seen, wants = await self._state()
            state = State("record_and_apply", seen + 1, seen, fields=tuple(_fields(_merged(wants, updates))))
            try:
                answer = await write(state)
                break
            except Overtaken:
                await self.remind(partitions, now)
        if answer is not None:
            try:
                await together(one.update_limits(updates, now, State("apply_next", state.number)) for one in others)
            except Overtaken:
                await self.remind(partitions, now)
            await self.deal(partitions, now, is_forced=True)
        return answer

    async def remind(self, partitions: Sequence[Partition], now: int) -> None:
        """Tell everything to partitions that are new, or that somebody who died on the way did not come to."""
        link = self._links.here()
        heeds = await together(link.command("HGET", self._meta(one.number), "applied_state") for one in partitions)
        heeded = [int(number or 0) for number in heeds]
        newest, wants = await self._state()
        if max(heeded) > newest:
            # The first partition's server has forgotten a state: what it knows is told anew, under a number of its own.
            with contextlib.suppress(Overtaken):
                await partitions[0].update_limits((), now, State("record", max(heeded) + 1, newest, fields=("", "")))
            newest, wants = await self._state()
        behind = [one for one, number in zip(partitions, heeded, strict=True) if number < newest]
        if not behind:
            return
        told = [want.update for want in wants.values()]
        await together(one.update_limits(told, now, State("apply_all", newest)) for one in behind)
        await self.deal(partitions, now, is_forced=True)

    async def deal_if_due(self, partitions: Sequence[Partition], now: int) -> None:
        """Deal if nobody of this process did in the last second."""
        at = asyncio.get_running_loop().time()
        if self._dealt_at is None or at - self._dealt_at >= EVERY:
            self._dealt_at = at
            await self.deal(partitions, now)

    async def deal(self, partitions: Sequence[Partition], now: int, *, is_forced: bool = False) -> bool:
        """Move shares to where they are wanted; answer whether that was possible.

        It is never what the caller was asked for: where it fails the shares are as they were, or frozen, until the next
        deal.
        """
        try:
            await self._deal(partitions, now, is_forced=is_forced)
        except StoreError as error:
            if not self._is_failing:
                log.warning("shares of limits could not be moved", error=str(error))
            self._is_failing = True
            return False
        self._is_failing = False
        return True

    async def _deal(self, partitions: Sequence[Partition], now: int, *, is_forced: bool) -> None:
        state, known = await self._state()
        wants = [want for want in known.values() if want.is_shared]
        self.is_needed = bool(wants)
        if not wants:
            return
        items: list[dict[str, object]] = [
            {"subject": LETTERS[want.subject], "name": want.name, "queue": want.queue} for want in wants
        ]
        if not is_forced:
            looks = await together(partition.quota("read", now, 0, items) for partition in partitions)
            seen = [_read(parts) for parts in looks]
            # What nobody asks for stays where it is.
            asked = [number for number in range(len(items)) if any(shares[number].wants for shares in seen if shares)]
            wants, items = [wants[number] for number in asked], [items[number] for number in asked]
            if not items:
                return
        (epoch,) = await partitions[0].quota("begin", now) or [0]
        stopped = await together(partition.quota("freeze", now, epoch, items, state) for partition in partitions)
        frozen = [_read(parts) for parts in stopped]
        if not all(frozen):
            return  # somebody else deals
        free = [_is_free(want, [shares[number] for shares in frozen]) for number, want in enumerate(wants)]
        # Whoever waits for nothing but what others have under way must not keep anything from those who can go on.
        wanting = [
            place
            for place, shares in enumerate(frozen)
            if any(share.wants and is_free for share, is_free in zip(shares, free, strict=True))
        ]
        favoured = wanting[now // 1_000 % len(wanting)] if wanting else -1
        dealt = [_deal(want, [shares[number] for shares in frozen], favoured) for number, want in enumerate(wants)]
        grants = [
            [
                item | {name: part[place] for name, part in parts.items()}
                for item, parts in zip(items, dealt, strict=True)
            ]
            for place in range(len(partitions))
        ]
        await together(
            partition.quota("grant", now, epoch, shares, state)
            for partition, shares in zip(partitions, grants, strict=True)
        )

    async def whole(self, limit_states: list[LimitState]) -> list[LimitState]:
        """Return limit states with the limits of the whole fleet in the place of shares."""
        wants = await self.wants()
        return [
            replace(limit_state, permits=want.permits, max_running=want.max_running, rate=want.rate)
            if (want := wants.get((limit_state.subject, limit_state.name, limit_state.queue)))
            else limit_state
            for limit_state in limit_states
        ]


def _honoured(limit_state: LimitState) -> Want:
    return Want(
        limit_state.subject,
        limit_state.name,
        limit_state.queue,
        limit_state.permits,
        limit_state.max_running,
        limit_state.rate,
        limit_state.weight,
        tuple(word for word in get_args(Pause) if word in limit_state.pauses),
    )


def _merged(wants: dict[Name, Want], updates: Sequence[LimitUpdate]) -> list[Want]:
    """Return what is wanted after updates, as far as they change it."""
    merged: dict[Name, Want] = {}
    for update in updates:
        name = (update.subject, update.name, update.queue)
        changed = {
            fact: value
            for fact in ("permits", "max_running", "rate", "weight", "pauses")
            if (value := getattr(update, fact)) is not UNSET
        }
        merged[name] = replace(merged.get(name) or wants.get(name) or Want(*name), **changed)
    return list(merged.values())


def _fields(wants: Iterable[Want]) -> Iterable[str | bytes]:
    for want in wants:
        yield f"{want.subject}\0{want.name}\0{want.queue}"
        yield _encode(want)


def _read(parts: list[Any] | None) -> list[Share]:
    width = len(Share.__struct_fields__)
    rows = (parts[start : start + width] for start in range(0, len(parts), width)) if parts else ()
    return [Share(*row) for row in rows]


def _is_free(want: Want, shares: Sequence[Share]) -> bool:
    """Whether a limit allows more than what is under way."""
    running, granted = sum(share.running for share in shares), sum(share.granted for share in shares)
    limits = ((want.permits, running), (want.max_running, running), (want.rate.count if want.rate else None, granted))
    return all(used < limit for limit, used in limits if limit is not None)


def _deal(want: Want, shares: Sequence[Share], favoured: int) -> dict[str, list[int]]:
    """Deal out the permits, the running jobs and the rate of one want."""
    wanting = [bool(share.wants) for share in shares]
    running, granted = [share.running for share in shares], [share.granted for share in shares]
    favour = shares[favoured] if favoured >= 0 else Share(0, 0, False, 0, 0, 0)  # noqa: FBT003 - a row, not a call
    dealt = {}
    if want.permits:
        dealt["permits"] = deal(want.permits, running, wanting, favoured, favour.permits)
    if want.max_running:
        dealt["max_running"] = deal(want.max_running, running, wanting, favoured, favour.max_running)
    if want.rate:
        dealt["count"] = deal(want.rate.count, granted, wanting, favoured, favour.count)
    return dealt
