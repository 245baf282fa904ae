"""One gate as a worker process sees it: the fleet's, and what was heard since."""

from collections.abc import Iterable
from typing import NamedTuple

from reprieve.core.gate import Calls, Gate, PushBack, Signal, step
from reprieve.stores.protocol import Entry

CALM = 0.01
"""The running share of failures below which a dependency counts as well."""

WATCHED_FOR = 10.0
"""Seconds after an outage for which all go on telling: whoever held the gate in error would hold it again."""

FORGET_AFTER = 3_600.0
"""Seconds without news after which an open gate is forgotten, whatever it has heard."""

WITNESSES = 8
"""Jobs that are named as having failed, at the most."""


class Sent(NamedTuple):
    """A write whose reply has not arrived, and how much of what was heard it tells."""

    version: int
    value: bytes | None
    told: int

    def is_in(self, entry: Entry | None) -> bool:
        """Whether it was done, and nobody has written since."""
        version, value = (0, None) if entry is None else (entry.version, entry.value)
        return version != self.version and value == self.value


class View:
    """One gate, as this process sees it."""

    __slots__ = ("fleet", "gate", "heard", "seen_at", "sent", "version")

    def __init__(self, dependency: str, now: int) -> None:
        """Know nothing of it yet."""
        self.fleet = Gate(dependency=dependency)
        """The fleet's gate, as it was last read or written."""
        self.version = 0
        """The version of its entry; 0 is no entry. Versions only grow, also when an entry is deleted and made again."""
        self.seen_at = now
        """When that version was first seen here."""
        self.heard: list[Signal] = []
        """What the fleet has not been told."""
        self.sent: Sent | None = None
        self.gate = self.fleet
        """The fleet's gate after all that was heard."""

    @property
    def is_unconfirmed(self) -> bool:
        """Whether it is held here, and the fleet does not know."""
        return self.gate.mode == "held" and self.fleet.mode != "held"

    def is_due(self, now: int) -> bool:
        """Whether it is time for a probe."""
        return self.gate.probe_at is not None and self.gate.probe_at <= now

    def is_over(self, now: int) -> bool:
        """Whether there is an entry that nobody needs any more."""
        return self.version > 0 and not self.heard and self.is_idle_or_well(self.fleet, self.version, now)

    def is_idle_or_well(self, gate: Gate, version: int, now: int) -> bool:
        """Whether the fleet's gate, in this version, need not be kept."""
        is_idle = version == self.version and self.is_idle(now)
        return is_well(gate, now) or (gate.mode == "open" and is_idle and not self.heard)

    def is_idle(self, now: int) -> bool:
        """Whether nothing was written about it for so long that it may be forgotten."""
        return now - self.seen_at >= FORGET_AFTER * 1_000

    def hear(self, signal: Signal, now: int) -> None:
        """Take what the fleet will be told."""
        self.heard.append(signal)
        self.gate = step(self.gate, signal, now)

    def recognise(self, entry: Entry | None) -> None:
        """Forget what the fleet was told although the reply was lost, or the same calls would count twice."""
        if self.sent is not None and self.sent.is_in(entry):
            del self.heard[: self.sent.told]
        self.sent = None

    def learn(self, gate: Gate, version: int, now: int) -> None:
        """Take the fleet's gate, unless a newer one is known; what it has not been told comes on top."""
        if version > self.version:
            self.seen_at = now
        if version >= self.version:
            self.fleet, self.version = gate, version
        self.gate = follow(self.fleet, self.heard, now)

    def lose(self, version: int, now: int) -> None:
        """Take it that the entry is gone that had this version, unless a newer one is known."""
        if self.version <= version:
            self.version = 0
            self.learn(Gate(dependency=self.fleet.dependency), 0, now)


def is_well(gate: Gate, now: int) -> bool:
    """Whether a dependency is so well that nobody need be told."""
    is_quiet = gate.mode == "open" and gate.evidence == 0 and gate.failing < CALM
    return is_quiet and now - gate.since_at >= WATCHED_FOR * 1_000


def follow(gate: Gate, signals: Iterable[Signal], now: int) -> Gate:
    """Return a gate after all these signals."""
    for signal in signals:
        gate = step(gate, signal, now)
    return gate


def merge(signals: list[Signal]) -> list[Signal]:
    """Put calls together: one signal for all of them, and the push-backs as they are."""
    calls = [signal for signal in signals if isinstance(signal, Calls)]
    others: list[Signal] = [signal for signal in signals if isinstance(signal, PushBack)]
    if not calls:
        return others
    failed = tuple(dict.fromkeys(name for call in calls for name in call.failed))[:WITNESSES]
    merged = Calls(
        oks=sum(call.oks for call in calls),
        fails=sum(call.fails for call in calls),
        under_way=calls[-1].under_way,
        failed=failed,
        answered_at=max((call.answered_at for call in calls if call.answered_at is not None), default=None),
    )
    return [merged, *others]
