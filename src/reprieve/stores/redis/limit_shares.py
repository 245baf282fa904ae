"""Shares of limits: how a limit that holds for all partitions is divided among them."""

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from reprieve.core.rate import Rate
from reprieve.stores.limit_audit import LimitsBefore
from reprieve.stores.limit_fields import OWN_BITS, inherited_bits, own_fields, owned_bits, pause_bits, set_fields
from reprieve.stores.protocol import LimitState, LimitUpdate, Pause, Subject
from reprieve.stores.redis.limit_updates import subject_of
from reprieve.stores.redis.replies import rows

Name: TypeAlias = tuple[Subject, str | None, str, str]
"""Subject, name or None for a default, the queue of a tenant, and the dependency of a tenant_dependency."""


class WantedLimit(msgspec.Struct, array_like=True, frozen=True):
    """The limits of one subject that hold for all partitions together."""

    subject: Subject
    name: str | None
    """None for a default."""
    queue: str
    permits: int | None = None
    max_running: int | None = None
    rate: Rate | None = None
    weight: float = 1.0
    pauses: tuple[Pause, ...] = ()
    dependency: str = ""
    own: int = 0
    """Bits of the fields that are not those of the default."""

    @property
    def key(self) -> Name:
        """What names its subject."""
        return self.subject, self.name, self.queue, self.dependency

    @property
    def before(self) -> LimitsBefore:
        """It, as an audit entry of its next update tells it."""
        rate = self.rate
        return LimitsBefore(
            own=self.own,
            permits=self.permits,
            max_running=self.max_running,
            rate_count=None if rate is None else rate.count,
            rate_window=None if rate is None else rate.window,
            weight=self.weight,
            pauses=pause_bits(self.pauses),
        )

    @property
    def update(self) -> LimitUpdate:
        """The update for a partition that knows nothing of it."""
        own = own_fields(self.own)
        update = LimitUpdate(
            subject=self.subject,
            name=self.name,
            queue=self.queue,
            dependency=self.dependency,
            permits=self.permits if "permits" in own else "default",
            max_running=self.max_running if "max_running" in own else "default",
            rate=self.rate if "rate" in own else "default",
        )
        if self.subject == "tenant" and self.name is not None:
            return replace(update, weight=self.weight)
        return (
            replace(update, pauses=self.pauses if "pauses" in own else "default") if self.subject == "queue" else update
        )

    @property
    def is_shared(self) -> bool:
        """Whether there is anything to divide."""
        return self.name is not None and bool(self.permits or self.max_running or self.rate)

    @property
    def item(self) -> dict[str, object]:
        """How scripts name its subject."""
        return subject_of(self.subject, self.name or "", self.queue, self.dependency)


class Share(NamedTuple):
    """What a partition has of one limit, and whether it wants more: see limit_shares.lua."""

    running: int
    granted: int
    wants_more: int
    permits: int
    max_running: int
    rate_count: int


_NO_SHARE: Final = Share(0, 0, 0, 0, 0, 0)
_encode = msgspec.msgpack.Encoder().encode
decode_wanted = msgspec.msgpack.Decoder(WantedLimit).decode


def read_shares(reply: list[Any] | None) -> list[Share]:
    """Return the shares of a partition, one for each item that was asked for."""
    return list(rows(Share, reply or ()))


def encode_fields(wanted: Iterable[WantedLimit]) -> Iterable[str | bytes]:
    """Yield the fields of `:wanted_limits`, each with its value, which is empty for a subject without limits."""
    for limit in wanted:
        # No name has a control character.
        name = "\1" if limit.name is None else limit.name
        yield f"{limit.subject}\0{name}\0{limit.queue or limit.dependency}"
        yield b"" if limit == no_limit(*limit.key) else _encode(limit)


def wanted_from_state(state: LimitState) -> WantedLimit:
    """Return what a single partition has applied so far of a name's own limits."""
    own = state.own
    return WantedLimit(
        state.subject,
        state.name,
        state.queue,
        state.permits if "permits" in own else None,
        state.max_running if "max_running" in own else None,
        state.rate if "rate" in own else None,
        state.weight,
        state.pauses if "pauses" in own else (),
        state.dependency,
        sum(OWN_BITS[field] for field in own),
    )


def no_limit(subject: Subject, name: str | None, queue: str, dependency: str) -> WantedLimit:
    """Return what is wanted of a subject without limits."""
    return WantedLimit(subject, name, queue, dependency=dependency)


def updated(wanted: dict[Name, WantedLimit], updates: Iterable[LimitUpdate]) -> list[WantedLimit]:
    """Return the wanted limits that updates change, as they are afterwards."""
    merged: dict[Name, WantedLimit] = {}
    for update in updates:
        name = (update.subject, update.name, update.queue, update.dependency)
        before = merged.get(name) or wanted.get(name) or no_limit(*name)
        changed: dict[str, Any] = {field: _value(getattr(update, field), field) for field in set_fields(update)}
        if update.weight is not UNSET:
            changed["weight"] = update.weight
        own = (before.own | owned_bits(update)) & ~inherited_bits(update)
        merged[name] = replace(before, own=own, **changed)
    return list(merged.values())


def _value(value: object, field: str) -> object:
    if value == "default":
        return () if field == "pauses" else None
    return value


def without_inherited(update: LimitUpdate) -> LimitUpdate:
    """Return an update that sets only what is not "default"."""
    inherited = [field for field in set_fields(update) if getattr(update, field) == "default"]
    return replace(update, **dict.fromkeys(inherited, UNSET))


def whole_limits(state: LimitState, wanted: dict[Name, WantedLimit]) -> LimitState:
    """Return a limit state with the limits of the whole store in the place of shares."""
    subject, scope = state.subject, (state.queue, state.dependency)
    keys: tuple[Name, ...] = (subject, state.name, *scope), (subject, None, *scope), (subject, None, "", "")
    limits = [wanted[key] for key in keys if key in wanted]
    facts = {}
    for field, bit in OWN_BITS.items():
        holding = next((limit for limit in limits if limit.own & bit), None)
        facts[field] = () if holding is None and field == "pauses" else getattr(holding, field, None)
    return replace(state, **facts)


def divide(total: int, used: Sequence[int], wanting: Sequence[bool], favoured: int = -1, kept: int = 0) -> list[int]:
    """Divide a limit: each partition keeps what is in use, and the rest goes to those that want more, or to all.

    The favoured partition also keeps `kept`, even unused, and gets the first of the rest: a job goes through several
    limits, and a partition must not lose the shares that it has while it waits for the others.
    """
    shares = list(used)
    rest = total - sum(used)
    if rest < 0:
        # More is in use than the limit allows: nothing starts until enough has ended.
        return [0] * len(shares)
    if favoured >= 0:
        extra = min(rest, max(0, kept - shares[favoured]))
        shares[favoured] += extra
        rest -= extra
    takers = [number for number, wants in enumerate(wanting) if wants] or list(range(len(used)))
    takers.sort(key=lambda number: number != favoured)
    for index, number in enumerate(takers):
        shares[number] += rest // len(takers) + (index < rest % len(takers))
    return shares


def new_shares(
    wanted: Sequence[WantedLimit], frozen: Sequence[Sequence[Share]], turn: int
) -> list[list[dict[str, object]]]:
    """Return the items of a grant for each partition; `turn` chooses the favoured one among those that want more."""
    favoured = _favoured(wanted, frozen, turn)
    divided = [_divided(limit, [shares[index] for shares in frozen], favoured) for index, limit in enumerate(wanted)]
    return [
        [
            limit.item | {name: shares[number] for name, shares in parts.items()}
            for limit, parts in zip(wanted, divided, strict=True)
        ]
        for number in range(len(frozen))
    ]


def _favoured(wanted: Sequence[WantedLimit], frozen: Sequence[Sequence[Share]], turn: int) -> int:
    """Return the favoured partition, or -1.

    It is one that waits for a limit which is not used up. A partition that waits only for what others have in use must
    not keep anything from those that can go on.
    """
    free = [_has_room(limit, [shares[index] for shares in frozen]) for index, limit in enumerate(wanted)]
    wanting = [
        number
        for number, shares in enumerate(frozen)
        if any(share.wants_more and has_room for share, has_room in zip(shares, free, strict=True))
    ]
    return wanting[turn % len(wanting)] if wanting else -1


def _has_room(limit: WantedLimit, shares: Sequence[Share]) -> bool:
    """Whether a limit allows more than what is in use."""
    running, granted = sum(share.running for share in shares), sum(share.granted for share in shares)
    limits = (
        (limit.permits, running),
        (limit.max_running, running),
        (limit.rate.count if limit.rate else None, granted),
    )
    return all(used < most for most, used in limits if most is not None)


def _divided(limit: WantedLimit, shares: Sequence[Share], favoured: int) -> dict[str, list[int]]:
    """Return the new shares of permits, running jobs and rate of one limit, by partition."""
    wanting = [bool(share.wants_more) for share in shares]
    running, granted = [share.running for share in shares], [share.granted for share in shares]
    kept = shares[favoured] if favoured >= 0 else _NO_SHARE
    divided = {}
    if limit.permits:
        divided["permits"] = divide(limit.permits, running, wanting, favoured, kept.permits)
    if limit.max_running:
        divided["max_running"] = divide(limit.max_running, running, wanting, favoured, kept.max_running)
    if limit.rate:
        divided["count"] = divide(limit.rate.count, granted, wanting, favoured, kept.rate_count)
    return divided
