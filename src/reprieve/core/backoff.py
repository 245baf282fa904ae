"""How long to wait after the k-th charged failure, and how chance spreads that wait.

A backoff says `raw(k)`; its cap and its jitter make the delay. Failures count from 1 and include the one
just recorded. Without a `u` the delay is `min(cap, raw(k))`; with one it is drawn from the jitter's range.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from reprieve.core.duration import LONGEST, Duration, clamp, seconds
from reprieve.errors import InvalidBackoff


class Jitter(Protocol):
    """Spreads a wait, so that jobs which failed together do not return together."""

    def spread(self, raw: float, cap: float, u: float) -> float:
        """Draw the wait in seconds for a raw wait, its cap (infinite when there is none) and chance u in [0, 1)."""
        ...


@dataclass(frozen=True, slots=True)
class NoJitter:
    """Exactly the capped wait."""

    def spread(self, raw: float, cap: float, u: float) -> float:  # noqa: ARG002 - the protocol's third word
        """Return min(cap, raw)."""
        return min(cap, raw)


@dataclass(frozen=True, slots=True)
class PlusMinus:
    """± a fraction of the wait: capped first, so the cap may be passed; or, with `cap_last`, never passed."""

    fraction: float
    cap_last: bool = False

    def __post_init__(self) -> None:
        """Refuse a fraction that could make a wait negative."""
        _require_fraction(self.fraction, 1.0)

    def spread(self, raw: float, cap: float, u: float) -> float:
        """Draw from d(1−f) … d(1+f)."""
        if self.cap_last:
            return min(cap, _between(raw * (1 - self.fraction), raw * (1 + self.fraction), u))
        wait = min(cap, raw)
        return _between(wait * (1 - self.fraction), wait * (1 + self.fraction), u)


@dataclass(frozen=True, slots=True, init=False)
class Full:
    """Anything from the floor up to the capped wait: the widest spread, for the largest herds."""

    floor: float

    def __init__(self, floor: Duration = 0.0) -> None:
        """Accept the floor as any duration."""
        object.__setattr__(self, "floor", seconds(floor, "jitter floor"))

    def spread(self, raw: float, cap: float, u: float) -> float:
        """Draw from floor … min(cap, raw)."""
        wait = min(cap, raw)
        return _between(min(self.floor, wait), wait, u)


@dataclass(frozen=True, slots=True)
class Equal:
    """Half of the wait is certain, the other half is chance."""

    def spread(self, raw: float, cap: float, u: float) -> float:
        """Draw from d/2 … d."""
        wait = min(cap, raw)
        return _between(wait / 2, wait, u)


@dataclass(frozen=True, slots=True)
class Bounded:
    """± a fraction that never passes the cap and never piles up on it: near the cap the range slides below it."""

    fraction: float

    def __post_init__(self) -> None:
        """Refuse a fraction whose range below the cap would reach below zero."""
        _require_fraction(self.fraction, 0.5)

    def spread(self, raw: float, cap: float, u: float) -> float:
        """Draw from d(1−f) … d(1+f), or from cap(1−2f) … cap where that would pass the cap."""
        if raw * (1 + self.fraction) <= cap:
            return _between(raw * (1 - self.fraction), raw * (1 + self.fraction), u)
        return _between(cap * (1 - 2 * self.fraction), cap, u)


class Backoff(ABC):
    """The wait before a retry as a function of the failures so far."""

    __slots__ = ()
    cap: float
    jitter: Jitter

    @abstractmethod
    def raw(self, failures: int) -> float:
        """Return the wait in seconds before cap and jitter; it may be infinite."""

    def delay(self, failures: int, u: float | None = None, previous: float | None = None) -> float:  # noqa: ARG002 - for backoffs that continue
        """Return the wait in seconds: before jitter, or with a `u` in [0, 1) after it.

        `previous` is the wait before this one, for the backoffs that continue from it.
        """
        _require_draw(failures, u)
        raw = clamp(self.raw(failures))
        return min(self.cap, raw) if u is None else self.jitter.spread(raw, self.cap, u)


@dataclass(frozen=True, slots=True, init=False)
class Exponential(Backoff):
    """`base · factor^(k−1)`: the wait grows by the same factor each time."""

    base: float
    factor: float
    cap: float
    jitter: Jitter

    def __init__(
        self,
        base: Duration,
        *,
        factor: float = 2.0,
        cap: Duration | None = None,
        jitter: Jitter | float = 0.0,
    ) -> None:
        """Accept durations as people write them; a jitter given as a number is `PlusMinus`."""
        if not 1 <= factor < math.inf:
            message = f"factor {factor!r} would shrink the wait; give one of 1 or more"
            raise InvalidBackoff(message)
        object.__setattr__(self, "base", seconds(base, "base"))
        object.__setattr__(self, "factor", factor)
        _set_limits(self, cap, jitter)

    def raw(self, failures: int) -> float:
        """Return base · factor^(k−1)."""
        try:
            return self.base * self.factor ** (failures - 1)
        except OverflowError:
            return math.inf


@dataclass(frozen=True, slots=True, init=False)
class Decorrelated(Exponential):
    """Each wait is drawn from base … factor · the wait before it, so two jobs soon share no rhythm."""

    def __init__(self, base: Duration, *, factor: float = 3.0, cap: Duration | None = None) -> None:
        """Accept durations as people write them; the draw itself is the jitter."""
        # Named in full: a slotted dataclass is a second class, which a bare super() does not know.
        Exponential.__init__(self, base, factor=factor, cap=cap)

    def delay(self, failures: int, u: float | None = None, previous: float | None = None) -> float:
        """Draw from base … factor · previous, capped; without a previous wait its unjittered value stands in."""
        _require_draw(failures, u)
        unjittered = min(self.cap, clamp(self.raw(failures)))
        if u is None:
            return unjittered
        before = clamp(self.raw(failures - 1)) if previous is None else previous
        return min(self.cap, _between(self.base, self.factor * max(self.base, before), u))


@dataclass(frozen=True, slots=True, init=False)
class Linear(Backoff):
    """`base + step · (k−1)`: the wait grows by the same amount each time."""

    base: float
    step: float
    cap: float
    jitter: Jitter

    def __init__(
        self,
        base: Duration,
        *,
        step: Duration | None = None,
        cap: Duration | None = None,
        jitter: Jitter | float = 0.0,
    ) -> None:
        """Accept durations as people write them; the step is the base unless it is given."""
        object.__setattr__(self, "base", seconds(base, "base"))
        object.__setattr__(self, "step", self.base if step is None else seconds(step, "step"))
        _set_limits(self, cap, jitter)

    def raw(self, failures: int) -> float:
        """Return base + step · (k−1)."""
        return self.base + self.step * (failures - 1)


@dataclass(frozen=True, slots=True, init=False)
class Steps(Backoff):
    """The waits one by one; the last repeats. A single step is a fixed wait."""

    waits: tuple[float, ...]
    cap: float
    jitter: Jitter

    def __init__(self, *waits: Duration, cap: Duration | None = None, jitter: Jitter | float = 0.0) -> None:
        """Accept at least one wait."""
        if not waits:
            message = 'steps need at least one wait, for example Steps("5s", "5m", "2h")'
            raise InvalidBackoff(message)
        object.__setattr__(self, "waits", tuple(seconds(wait, "step") for wait in waits))
        _set_limits(self, cap, jitter)

    def raw(self, failures: int) -> float:
        """Return the k-th wait, or the last."""
        return self.waits[min(failures, len(self.waits)) - 1]


@dataclass(frozen=True, slots=True, init=False)
class Formula(Backoff):
    """Any function of the failures. What it answers is clamped: it is not ours, and a retry must go on."""

    function: Callable[[int], float]
    cap: float
    jitter: Jitter

    def __init__(
        self,
        function: Callable[[int], float],
        *,
        cap: Duration | None = None,
        jitter: Jitter | float = 0.0,
    ) -> None:
        """Wrap a function from failures to seconds."""
        object.__setattr__(self, "function", function)
        _set_limits(self, cap, jitter)

    def raw(self, failures: int) -> float:
        """Return what the function says."""
        return float(self.function(failures))


@dataclass(frozen=True, slots=True, init=False)
class Capped(Backoff):
    """Another backoff that never waits longer than this."""

    inner: Backoff
    cap: float
    jitter: Jitter

    def __init__(self, inner: Backoff, cap: Duration) -> None:
        """Keep the inner jitter: the cap comes after it."""
        object.__setattr__(self, "inner", inner)
        _set_limits(self, cap, inner.jitter)

    def raw(self, failures: int) -> float:
        """Return the inner wait."""
        return self.inner.raw(failures)

    def delay(self, failures: int, u: float | None = None, previous: float | None = None) -> float:
        """Return the inner delay, or the cap."""
        return min(self.cap, self.inner.delay(failures, u, previous))


def fixed(wait: Duration, *, jitter: Jitter | float = 0.0) -> Steps:
    """Wait the same time after every failure."""
    return Steps(wait, jitter=jitter)


def fast_then_slow(fast: Duration, times: int, slow: Duration, *, jitter: Jitter | float = 0.0) -> Steps:
    """Wait `fast` after each of the first `times` failures, then `slow`: for blips that end soon or not at all."""
    if times < 1:
        message = f"times {times!r} leaves no fast retry; give 1 or more"
        raise InvalidBackoff(message)
    return Steps(*[fast] * times, slow, jitter=jitter)


def _set_limits(backoff: Backoff, cap: Duration | None, jitter: Jitter | float) -> None:
    object.__setattr__(backoff, "cap", LONGEST if cap is None else seconds(cap, "cap"))
    if isinstance(jitter, int | float):
        jitter = PlusMinus(jitter) if jitter else NoJitter()
    object.__setattr__(backoff, "jitter", jitter)


def _require_fraction(fraction: float, largest: float) -> None:
    if not 0 <= fraction <= largest:
        message = f"jitter fraction {fraction!r} is outside 0 … {largest}"
        raise InvalidBackoff(message)


def _require_draw(failures: int, u: float | None) -> None:
    if failures < 1:
        message = f"failures {failures!r} is not a count from 1: the wait follows a failure"
        raise InvalidBackoff(message)
    if u is not None and not 0 <= u < 1:
        message = f"u {u!r} is outside [0, 1)"
        raise InvalidBackoff(message)


def _between(low: float, high: float, u: float) -> float:
    return low + (high - low) * u


STANDARD = Exponential("2s", factor=3, cap="15m", jitter=Full("1s"))
"""The backoff of whoever names none, and of whoever names one that fails."""
