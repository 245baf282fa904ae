"""Backoff and jitter: how long to wait after the k-th charged failure.

A backoff defines `raw(k)`; its cap and its jitter make the delay. Failures count from 1 and include the one
just recorded. Without a `u` the delay is `min(cap, raw(k))`; with one it is drawn from the jitter's range.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from reprieve.core.duration import MAX_DURATION_SECONDS, Duration, clamp, seconds
from reprieve.core.values import flag, number, shown, to_float, whole
from reprieve.errors import InvalidBackoff, ValidationError

MAX_FACTOR = 1_000_000.0
"""The largest factor of an exponential backoff."""

MAX_STEPS = 10_000
"""The most steps that `fast_then_slow` makes."""


class Jitter(Protocol):
    """Spreads a wait, so that jobs that failed together do not return together."""

    def spread(self, raw: float, cap: float, u: float) -> float:
        """Return the wait in seconds for a raw wait, its cap (infinite when there is none) and a random u in [0, 1)."""
        ...


@dataclass(frozen=True, slots=True)
class NoJitter:
    """The capped wait without jitter."""

    def spread(self, raw: float, cap: float, u: float) -> float:  # noqa: ARG002 - a parameter of the protocol
        """Return min(cap, raw)."""
        return min(cap, raw)


@dataclass(frozen=True, slots=True)
class PlusMinus:
    """± a fraction of the wait. The cap applies before the jitter and may be passed; with `cap_last`, after it."""

    fraction: float
    cap_last: bool = False

    def __post_init__(self) -> None:
        """Refuse a fraction that could make a wait negative."""
        _set_fraction(self, 1.0)
        flag(self.cap_last, "cap_last", InvalidBackoff)

    def spread(self, raw: float, cap: float, u: float) -> float:
        """Return a wait in d(1−f) … d(1+f)."""
        if self.cap_last:
            return min(cap, _between(raw * (1 - self.fraction), raw * (1 + self.fraction), u))
        wait = min(cap, raw)
        return _between(wait * (1 - self.fraction), wait * (1 + self.fraction), u)


@dataclass(frozen=True, slots=True, init=False)
class Full:
    """Anything from the floor up to the capped wait: the widest spread, for many jobs at once."""

    floor: float

    def __init__(self, floor: Duration = 0.0) -> None:
        """Accept the floor as any duration."""
        object.__setattr__(self, "floor", seconds(floor, "jitter floor"))

    def spread(self, raw: float, cap: float, u: float) -> float:
        """Return a wait in floor … min(cap, raw)."""
        wait = min(cap, raw)
        return _between(min(self.floor, wait), wait, u)


@dataclass(frozen=True, slots=True)
class Equal:
    """Half of the wait is fixed, the other half is random."""

    def spread(self, raw: float, cap: float, u: float) -> float:
        """Return a wait in d/2 … d."""
        wait = min(cap, raw)
        return _between(wait / 2, wait, u)


@dataclass(frozen=True, slots=True)
class Bounded:
    """± a fraction that never passes the cap: near the cap the whole range moves below it, so waits do not pile up."""

    fraction: float

    def __post_init__(self) -> None:
        """Refuse a fraction whose range could be negative."""
        _set_fraction(self, 0.5)

    def spread(self, raw: float, cap: float, u: float) -> float:
        """Return a wait in d(1−f) … d(1+f), or from cap(1−2f) … cap where that would pass the cap."""
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

    def delay(self, failures: int, u: float | None = None, previous: float | None = None) -> float:  # noqa: ARG002 - for backoffs that build on it
        """Return the wait in seconds: before jitter, or with a `u` in [0, 1) after it.

        `previous` is the wait before this one, for backoffs that build on it.
        """
        _require_draw(failures, u)
        raw = clamp(require_wait(self.raw(failures)))
        return min(self.cap, raw) if u is None else require_wait(self.jitter.spread(raw, self.cap, u))


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
        object.__setattr__(self, "base", seconds(base, "base"))
        object.__setattr__(self, "factor", number(factor, "factor", InvalidBackoff, 1.0, MAX_FACTOR))
        _set_limits(self, cap, jitter)

    def raw(self, failures: int) -> float:
        """Return base · factor^(k−1)."""
        try:
            # As floats: the power of a whole factor would be computed to its last digit.
            return self.base * float(self.factor) ** (failures - 1)
        except OverflowError:
            return math.inf


@dataclass(frozen=True, slots=True, init=False)
class Decorrelated(Exponential):
    """Each wait is drawn from base … factor · the wait before it, so that the retries of two jobs drift apart."""

    def __init__(self, base: Duration, *, factor: float = 3.0, cap: Duration | None = None) -> None:
        """Accept durations as people write them; the random draw is the jitter."""
        # Not super(): a slotted dataclass is a copy of the class, which a bare super() does not know.
        Exponential.__init__(self, base, factor=factor, cap=cap)

    def delay(self, failures: int, u: float | None = None, previous: float | None = None) -> float:
        """Return a wait in base … factor · previous, capped; without a previous wait, its unjittered value is used."""
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
        """Accept durations as people write them; the step defaults to the base."""
        object.__setattr__(self, "base", seconds(base, "base"))
        object.__setattr__(self, "step", self.base if step is None else seconds(step, "step"))
        _set_limits(self, cap, jitter)

    def raw(self, failures: int) -> float:
        """Return base + step · (k−1)."""
        return self.base + self.step * (failures - 1)


@dataclass(frozen=True, slots=True, init=False)
class Steps(Backoff):
    """A list of waits; the last repeats. A single step is a fixed wait."""

    waits: tuple[float, ...]
    cap: float
    jitter: Jitter

    def __init__(self, *waits: Duration, cap: Duration | None = None, jitter: Jitter | float = 0.0) -> None:
        """Accept at least one wait."""
        if not waits:
            message = 'Steps must have one wait or more, for example Steps("5s", "5m", "2h"), got none'
            raise InvalidBackoff(message)
        object.__setattr__(self, "waits", tuple(seconds(wait, "step") for wait in waits))
        _set_limits(self, cap, jitter)

    def raw(self, failures: int) -> float:
        """Return the k-th wait, or the last."""
        return self.waits[min(failures, len(self.waits)) - 1]


@dataclass(frozen=True, slots=True, init=False)
class Formula(Backoff):
    """Any function of the failures. Its result is clamped to a valid duration."""

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
        object.__setattr__(self, "function", _require_function(function))
        _set_limits(self, cap, jitter)

    def raw(self, failures: int) -> float:
        """Return the result of the function."""
        return self.function(failures)


@dataclass(frozen=True, slots=True, init=False)
class Capped(Backoff):
    """Another backoff with a cap on its waits."""

    inner: Backoff
    cap: float
    jitter: Jitter

    def __init__(self, inner: Backoff, cap: Duration) -> None:
        """Keep the inner jitter; the cap applies after it."""
        object.__setattr__(self, "inner", require_backoff(inner, "backoff inside Capped", InvalidBackoff))
        _set_limits(self, cap, inner.jitter)

    def raw(self, failures: int) -> float:
        """Return the inner wait."""
        return self.inner.raw(failures)

    def delay(self, failures: int, u: float | None = None, previous: float | None = None) -> float:
        """Return the inner delay, or the cap."""
        return min(self.cap, require_wait(self.inner.delay(failures, u, previous)))


def fixed(wait: Duration, *, jitter: Jitter | float = 0.0) -> Steps:
    """Wait the same time after every failure."""
    return Steps(wait, jitter=jitter)


def fast_then_slow(fast: Duration, times: int, slow: Duration, *, jitter: Jitter | float = 0.0) -> Steps:
    """Wait `fast` after each of the first `times` failures, then `slow`: for short or long outages."""
    return Steps(*[fast] * whole(times, "times", InvalidBackoff, 1, MAX_STEPS), slow, jitter=jitter)


def require_backoff(value: object, what: str, error: type[ValidationError]) -> Backoff:
    """Return a backoff; `what` names it in the error."""
    if isinstance(value, Backoff):
        return value
    message = f'{what} must be a Backoff such as Exponential("2s"), got {shown(value)}'
    raise error(message)


def _require_function(value: object) -> object:
    if callable(value):
        return value
    message = f"a backoff must be a Backoff or a function of the failures, got {shown(value)}"
    raise InvalidBackoff(message)


def _set_limits(backoff: Backoff, cap: Duration | None, jitter: Jitter | float) -> None:
    object.__setattr__(backoff, "cap", MAX_DURATION_SECONDS if cap is None else seconds(cap, "cap"))
    spread = getattr(jitter, "spread", None)
    if spread is None:
        jitter = PlusMinus(jitter) if jitter != 0 else NoJitter()  # type: ignore[arg-type]  # a number, or refused
    elif not callable(spread) or isinstance(jitter, type):
        message = f"jitter must be a number, or a jitter such as Full(), got {shown(jitter)}"
        raise InvalidBackoff(message)
    object.__setattr__(backoff, "jitter", jitter)


def _set_fraction(jitter: "PlusMinus | Bounded", largest: float) -> None:
    fraction = number(jitter.fraction, "jitter fraction", InvalidBackoff, 0.0, largest)
    object.__setattr__(jitter, "fraction", fraction)


def _require_draw(failures: int, u: float | None) -> None:
    whole(failures, "failures", InvalidBackoff, 1)
    if u is not None and not 0 <= to_float(u) < 1:
        message = f"u must be in [0, 1), got {shown(u)}"
        raise InvalidBackoff(message)


def require_wait(wait: float) -> float:
    """Return a wait that a function or jitter of the application returned, as a plain number; it may be infinite."""
    plain = to_float(wait)
    if math.isnan(plain):
        message = f"a backoff must return a number of seconds, got {shown(wait)}"
        raise InvalidBackoff(message)
    return plain


def _between(low: float, high: float, u: float) -> float:
    return low + (high - low) * u


STANDARD = Exponential("2s", factor=3, cap="15m", jitter=Full("1s"))
"""The default backoff, also used in place of one that raises."""
