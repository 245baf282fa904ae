"""Shared limits: limits that hold for all partitions together, leased to them in shares.

The limits that are wanted are recorded in the first partition, as a state whose number only grows, and every partition
applies one state after the other. A partition that misses a state, because a process died, is told everything by the
next process; so are all partitions when others are added, since defaults are split among all.

The shares of a limit, with what is in use, never add up to more than the limit. Once a second a process moves shares to
where they are wanted: all partitions are frozen at what they have in use, then the rest is divided anew. A partition
that stays frozen, because a process died, gets its share from the next process.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple, TypeAlias, TypeVar, get_args

import structlog

from reprieve.core.audit import AuditEntry, Author, Automatic
from reprieve.errors import StoreError
from reprieve.stores.event_record import pack_notice
from reprieve.stores.limit_audit import LimitsBefore, limit_entry, limit_entry_without_before
from reprieve.stores.limit_notices import limit_notices
from reprieve.stores.protocol import EntryWrite, EntryWritten, LimitState, LimitUpdate, Subject, entry_audit
from reprieve.stores.redis.bounded_gather import bounded_gather
from reprieve.stores.redis.limit_shares import (
    Name,
    WantedLimit,
    decode_wanted,
    encode_fields,
    new_shares,
    no_limit,
    read_shares,
    updated,
    wanted_from_state,
    whole_limits,
    without_inherited,
)
from reprieve.stores.redis.limit_updates import LimitAudit, Overtaken, WantedState
from reprieve.stores.redis.partition import Partition
from reprieve.stores.redis.partitions import Partitions

DIVIDE_SECONDS: Final = 1.0
"""From one division of the limits to the next."""

T = TypeVar("T")
Wanted: TypeAlias = dict[Name, WantedLimit] | None
"""The limits of all partitions before a write; None in a store of one partition, which reads them in the write."""

Write = Callable[[WantedState | None, Wanted], Awaitable[T]]
"""Writes to the first partition, which applies a state in the same step."""

log = structlog.get_logger("reprieve")


class _Told(NamedTuple):
    """What a partition was told."""

    state: int
    partitions: int
    """For how many partitions its defaults were split."""


class SharedLimits:
    """The limits of a store, of one partition or of several."""

    def __init__(self, partitions: Partitions) -> None:
        """Take the partitions."""
        self._partitions = partitions
        self._divided_at: float | None = None
        self._is_failing = False
        self.is_needed = False
        """Whether any limit is shared, as far as this process knows."""

    async def update(self, updates: Sequence[LimitUpdate], now: int, author: Author) -> None:
        """Change limits, weights and pauses of all partitions."""

        async def write(state: WantedState | None, wanted: Wanted) -> bool:
            notices = tuple(map(pack_notice, limit_notices(updates, now, author)))
            audit = LimitAudit(_audit_entries(updates, now, author, wanted), notices=notices)
            await self._partitions[0].update_limits(updates, now, state, audit)
            return True

        await self._update(updates, now, write)

    async def compare_and_set(
        self, write: EntryWrite, now: int, author: Author, *, has_keys: bool = True
    ) -> EntryWritten:
        """Set or delete an entry of the first partition if it has this version, together with updates of all."""
        nothing = EntryWritten(entry=None)

        async def write_first(state: WantedState | None, wanted: Wanted) -> EntryWritten | None:
            nonlocal nothing
            audit = LimitAudit(
                _audit_entries(write.updates, now, author, wanted),
                entry_audit(write, now, author),
                tuple(map(pack_notice, write.notices)),
            )
            written = await self._partitions[0].compare_and_set(write, now, audit, state, has_keys=has_keys)
            if written.entry is None:
                nothing = written
                return None
            return written

        return await self._update(write.updates, now, write_first) or nothing

    async def _update(self, updates: Sequence[LimitUpdate], now: int, write: Write[T]) -> T:
        partitions = await self._partitions.load()
        if len(partitions) == 1 or not updates:
            with contextlib.suppress(Overtaken):
                return await write(None, None)
            # Another process has added partitions.
            await self._partitions.refresh()
        return await self._update_all(self._partitions.all(), updates, now, write)

    async def _update_all(
        self, partitions: Sequence[Partition], updates: Sequence[LimitUpdate], now: int, write: Write[T]
    ) -> T:
        """Record the wanted limits in one step with a write to the first partition, and tell the others.

        If the write returns None nothing was done.
        """
        first, *others = partitions
        await self.adopt(first)
        await self.catch_up(partitions, now)
        while True:
            seen, wanted = await self._wanted()
            fields = tuple(encode_fields(updated(wanted, updates)))
            state = WantedState("record_and_apply", seen + 1, seen, fields=fields)
            try:
                written = await write(state, wanted)
                break
            except Overtaken:
                await self.catch_up(partitions, now)
        if written is not None:
            following = WantedState("apply_next", state.number)
            try:
                await bounded_gather(one.update_limits(updates, now, following) for one in others)
            except Overtaken:
                await self.catch_up(partitions, now)
            await self.divide(partitions, now, is_forced=True)
        return written

    async def _wanted(self) -> tuple[int, dict[Name, WantedLimit]]:
        """Return the wanted limits, and the number of a state: the limits may be newer, then a write is overtaken."""
        reads = self._partitions[0].reads
        number = int(await reads.command("HGET", "meta", "wanted_state") or 0)
        found = await reads.command("HGETALL", "wanted_limits")
        wanted = (decode_wanted(data) for name, data in found.items() if name)
        return number, {limit.key: limit for limit in wanted}

    async def adopt(self, first: Partition) -> None:
        """Record the limits of what was the only partition, before others apply any."""
        while not await first.reads.command("EXISTS", "wanted_limits"):
            # A process that knows of one partition only may change its limits until they are recorded.
            found = await first.reads.command("HMGET", "meta", "direct_updates", "wanted_state")
            direct, number = (int(value or 0) for value in found)
            fields = ("", "", *encode_fields(await _applied_limits(first)))
            with contextlib.suppress(Overtaken):
                await first.update_limits((), 0, WantedState("record", number + 1, number, direct, fields))

    async def catch_up(self, partitions: Sequence[Partition], now: int) -> None:
        """Tell all wanted limits to partitions that are new, that miss a state, or that had fewer beside them."""
        fields = ("applied_state", "applied_partitions")
        states = await bounded_gather(one.reads.command("HMGET", "meta", *fields) for one in partitions)
        told = [_Told(*(int(number or 0) for number in state)) for state in states]
        newest_applied = max(one.state for one in told)
        newest, wanted = await self._wanted()
        if newest_applied > newest:
            # The first partition's server has lost a state: what it has becomes a new state.
            with contextlib.suppress(Overtaken):
                lost = WantedState("record", newest_applied + 1, newest, fields=("", ""))
                await partitions[0].update_limits((), now, lost)
            newest, wanted = await self._wanted()
        behind = [
            (one, found.state)
            for one, found in zip(partitions, told, strict=True)
            if found.state < newest or found.partitions < len(partitions)
        ]
        if not behind:
            return

        async def tell(one: Partition, seen: int) -> None:
            # What is no longer wanted is not recorded, but a partition that misses a state may have it.
            unwanted = [no_limit(*limit.key) for limit in await _applied_limits(one) if limit.key not in wanted]
            updates = [limit.update for limit in (*unwanted, *wanted.values())]
            await one.update_limits(updates, now, WantedState("apply_all", newest, seen))

        try:
            await bounded_gather(tell(one, seen) for one, seen in behind)
        except Overtaken:
            # Another process has told a partition of a state since that was read.
            await self.catch_up(partitions, now)
            return
        await self.divide(partitions, now, is_forced=True)

    async def divide_if_due(self, partitions: Sequence[Partition], now: int) -> None:
        """Divide the limits unless this process did so in the last second."""
        at = asyncio.get_running_loop().time()
        if self._divided_at is None or at - self._divided_at >= DIVIDE_SECONDS:
            self._divided_at = at
            await self.divide(partitions, now)

    async def divide(self, partitions: Sequence[Partition], now: int, *, is_forced: bool = False) -> bool:
        """Move shares to where they are wanted; return whether that was possible.

        The caller asked for something else, so a failure is logged and not raised. Then shares stay as they were, or
        frozen, until the next division.
        """
        try:
            await self._divide(partitions, now, is_forced=is_forced)
        except StoreError as error:
            if not self._is_failing:
                log.warning("shares of limits could not be moved", error=str(error))
            self._is_failing = True
            return False
        self._is_failing = False
        return True

    async def _divide(self, partitions: Sequence[Partition], now: int, *, is_forced: bool) -> None:
        state, known = await self._wanted()
        wanted = [limit for limit in known.values() if limit.is_shared]
        self.is_needed = bool(wanted)
        if wanted and not is_forced:
            wanted = await self._asked_for(partitions, now, wanted)
        if not wanted:
            return
        items = [limit.item for limit in wanted]
        (epoch,) = await partitions[0].limit_shares("begin", now) or [0]
        replies = await bounded_gather(one.limit_shares("freeze", now, epoch, items, state) for one in partitions)
        frozen = [read_shares(reply) for reply in replies]
        if not all(frozen):
            return  # another process divides
        grants = zip(partitions, new_shares(wanted, frozen, now // 1_000), strict=True)
        await bounded_gather(one.limit_shares("grant", now, epoch, shares, state) for one, shares in grants)

    @staticmethod
    async def _asked_for(partitions: Sequence[Partition], now: int, wanted: list[WantedLimit]) -> list[WantedLimit]:
        """Return the limits of which a partition wants more; the shares of others stay where they are."""
        items = [limit.item for limit in wanted]
        replies = await bounded_gather(one.limit_shares("read", now, 0, items) for one in partitions)
        shares = [read_shares(reply) for reply in replies]
        return [
            limit for index, limit in enumerate(wanted) if any(found[index].wants_more for found in shares if found)
        ]

    async def with_whole_limits(self, limit_states: list[LimitState]) -> list[LimitState]:
        """Return limit states with the limits of the whole store in the place of shares."""
        _, wanted = await self._wanted()
        return [whole_limits(limit_state, wanted) for limit_state in limit_states]

    async def defaults(self) -> list[LimitUpdate]:
        """Return the defaults of the whole store."""
        _, wanted = await self._wanted()
        updates = (limit.update for limit in wanted.values() if limit.name is None and limit.own)
        return [without_inherited(update) for update in updates]


def _audit_entries(
    updates: Sequence[LimitUpdate], now: int, author: Author, wanted: Wanted
) -> tuple[AuditEntry | None, ...]:
    """Return the audit entry of each update of a person; one that changes nothing has none."""
    if isinstance(author, Automatic):
        return ()
    if wanted is None:
        return tuple(limit_entry_without_before(update, now, author) for update in updates)
    entries: list[AuditEntry | None] = []
    known = dict(wanted)
    for update in updates:
        before = known.get((update.subject, update.name, update.queue, update.dependency))
        entries.append(limit_entry(update, now, author, (LimitsBefore() if before is None else before.before).facts()))
        known |= {limit.key: limit for limit in updated(known, (update,))}
    return tuple(entries)


async def _applied_limits(partition: Partition) -> list[WantedLimit]:
    """Return the limits that a partition has of names' own, and its defaults; numbers may be shares."""
    own = [
        limit
        for subject in get_args(Subject)
        for state in await partition.reads.limit_states(subject)
        if (limit := wanted_from_state(state)) != no_limit(*limit.key)
    ]
    return own + updated({}, await partition.reads.limit_defaults())
