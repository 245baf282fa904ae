"""One gate as a worker process sees it: the fleet's gate, and the calls that ended here since."""

from collections.abc import Iterable
from typing import NamedTuple

from reprieve.core.gate import Calls, Gate, PushBack, Signal, step
from reprieve.stores.gates import StoredGate, open_gate

CALM_FAILURE_SHARE = 0.01
"""The running share of failures below which a dependency counts as well."""

WATCHED_AFTER_OUTAGE_SECONDS = 10.0
"""Seconds after an outage during which every process shares its successes: one process alone may have held the gate in
error, and would hold it again."""

FORGET_AFTER_SECONDS = 3_600.0
"""Seconds without a write after which an open gate is forgotten, whatever its evidence."""

MAX_FAILED_JOBS = 8
"""Jobs that one write names as having failed."""


class PendingWrite(NamedTuple):
    """A write without a reply yet, and how many signals it contains."""

    version: int
    gate: Gate | None
    signals: int

    def is_done(self, stored: StoredGate) -> bool:
        """Whether the store has done it, and no other process has written since."""
        gate = stored.gate if stored.version else None
        return stored.version != self.version and gate == self.gate


class GateView:
    """One gate, as this process sees it."""

    __slots__ = ("fleet", "gate", "pending", "seen_at", "unshared", "version")

    def __init__(self, dependency: str, now: int) -> None:
        """Begin with a gate that is open."""
        self.fleet, self.version = open_gate(dependency)
        """The fleet's gate as it was last read or written, and its version in the store."""
        self.seen_at = now
        """When that version was first seen here."""
        self.unshared: list[Signal] = []
        """Signals that the fleet's gate does not contain yet."""
        self.pending: PendingWrite | None = None
        self.gate = self.fleet
        """The fleet's gate after the unshared signals."""

    @property
    def is_unconfirmed(self) -> bool:
        """Whether the gate is held here, and the fleet does not know."""
        return self.gate.mode == "held" and self.fleet.mode != "held"

    def is_due(self, now: int) -> bool:
        """Whether it is time for a probe."""
        return self.gate.probe_at is not None and self.gate.probe_at <= now

    def is_over(self, now: int) -> bool:
        """Whether there is an entry in the store that is not needed any more."""
        stored = StoredGate(self.fleet, self.version)
        return self.version > 0 and not self.unshared and self.is_idle_or_well(stored, now)

    def is_idle_or_well(self, stored: StoredGate, now: int) -> bool:
        """Whether the fleet's gate, in this version, need not be kept."""
        is_idle = stored.version == self.version and self.is_idle(now)
        return is_well(stored.gate, now) or (stored.gate.mode == "open" and is_idle and not self.unshared)

    def is_idle(self, now: int) -> bool:
        """Whether the last write is so long ago that the gate may be forgotten."""
        return now - self.seen_at >= FORGET_AFTER_SECONDS * 1_000

    def record(self, signal: Signal, now: int) -> None:
        """Step the gate here, and keep the signal for the fleet."""
        self.unshared.append(signal)
        self.gate = step(self.gate, signal, now)

    def resolve_pending(self, stored: StoredGate) -> None:
        """Drop the signals of a write that was done although its reply was lost: they must not count twice."""
        if self.pending is not None and self.pending.is_done(stored):
            del self.unshared[: self.pending.signals]
        self.pending = None

    def update(self, stored: StoredGate, now: int) -> None:
        """Take the fleet's gate, unless a newer one is known, and step it by the unshared signals."""
        if stored.version > self.version:
            self.seen_at = now
        if stored.version >= self.version:
            self.fleet, self.version = stored
        self.gate = follow(self.fleet, self.unshared, now)

    def replace(self, stored: StoredGate, now: int) -> None:
        """Take the fleet's gate whatever its version: the store may have been restored from a backup."""
        self.version = min(self.version, stored.version)
        self.update(stored, now)

    def forget(self, version: int, now: int) -> None:
        """Take the fleet's gate as open: its entry of this version is gone. Ignored if a newer version is known."""
        if self.version <= version:
            self.version = 0
            self.update(open_gate(self.fleet.dependency), now)


def is_well(gate: Gate, now: int) -> bool:
    """Whether a dependency is so well that its gate need not be shared."""
    is_quiet = gate.mode == "open" and gate.evidence == 0 and gate.failing < CALM_FAILURE_SHARE
    return is_quiet and now - gate.since_at >= WATCHED_AFTER_OUTAGE_SECONDS * 1_000


def follow(gate: Gate, signals: Iterable[Signal], now: int) -> Gate:
    """Return a gate after all these signals."""
    for signal in signals:
        gate = step(gate, signal, now)
    return gate


def merge(signals: list[Signal]) -> list[Signal]:
    """Return one signal for all calls, followed by the push-backs."""
    calls = [signal for signal in signals if isinstance(signal, Calls)]
    others: list[Signal] = [signal for signal in signals if isinstance(signal, PushBack)]
    if not calls:
        return others
    failed = tuple(dict.fromkeys(name for call in calls for name in call.failed))[:MAX_FAILED_JOBS]
    merged = Calls(
        oks=sum(call.oks for call in calls),
        fails=sum(call.fails for call in calls),
        neutral=sum(call.neutral for call in calls),
        under_way=calls[-1].under_way,
        failed=failed,
        last_success_at=max((call.last_success_at for call in calls if call.last_success_at is not None), default=None),
    )
    return [merged, *others]
