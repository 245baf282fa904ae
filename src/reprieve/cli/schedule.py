"""A policy in numbers: how long a job waits after each failure, with the bounds of its jitter."""

import math

from reprieve.core.backoff import (
    Backoff,
    Bounded,
    Decorrelated,
    Equal,
    Exponential,
    Full,
    Jitter,
    Linear,
    NoJitter,
    PlusMinus,
    Steps,
)
from reprieve.core.duration import MAX_DURATION_SECONDS, spell
from reprieve.core.policy import Policy
from reprieve.core.record import Record

UNLIMITED_WAITS = 6
"""Waits that are shown of a policy without max_attempts."""

MAX_U = math.nextafter(1.0, 0.0)
"""The largest random `u`: it gives the latest wait."""


class Wait(Record, omit_defaults=False):
    """The wait after the k-th charged failure, in seconds: before jitter, and its bounds with jitter."""

    failures: int
    wait: float
    earliest: float
    latest: float


class Schedule(Record, omit_defaults=False):
    """All waits of a policy; of one without max_attempts, the first few."""

    name: str
    purpose: str
    max_attempts: int | None
    deadline: float | None
    backoff: str
    jitter: str
    cap: float | None
    waits: tuple[Wait, ...]
    total: float
    """Seconds from the first failure to the last attempt, before jitter; without max_attempts, the deadline."""


def schedule_of(policy: Policy, name: str, purpose: str = "") -> Schedule:
    """Return the schedule of a policy."""
    count = UNLIMITED_WAITS if policy.max_attempts is None else policy.max_attempts - 1
    waits = tuple(_wait(policy, failures) for failures in range(1, count + 1))
    is_endless = policy.max_attempts is None and policy.deadline is not None
    return Schedule(
        name=name,
        purpose=purpose,
        max_attempts=policy.max_attempts,
        deadline=policy.deadline,
        backoff=_describe(policy.backoff),
        jitter=_describe_jitter(policy.backoff.jitter),
        cap=None if policy.backoff.cap == MAX_DURATION_SECONDS else policy.backoff.cap,
        waits=waits,
        total=policy.deadline if is_endless and policy.deadline else sum(wait.wait for wait in waits),
    )


def spell_waits(schedule: Schedule) -> str:
    """Return the waits before jitter as text."""
    waits = ", ".join(spell(wait.wait) for wait in schedule.waits)
    return f"{waits}, …" if schedule.max_attempts is None else waits or "none"


def spell_attempts(schedule: Schedule) -> str:
    """Return the limit on attempts as text."""
    return "∞" if schedule.max_attempts is None else str(schedule.max_attempts)


def _wait(policy: Policy, failures: int) -> Wait:
    bounds = sorted((policy.delay(failures, 0.0), policy.delay(failures, MAX_U)))
    # Rounding turns the largest draw into the end of the range.
    return Wait(
        failures=failures,
        wait=policy.delay(failures),
        earliest=round(bounds[0], 6),
        latest=round(bounds[1], 6),
    )


def _describe(backoff: Backoff) -> str:
    match backoff:
        case Decorrelated():
            return f"from {spell(backoff.base)} to {backoff.factor:g} × the previous wait"
        case Exponential(factor=1):
            return f"always {spell(backoff.base)}"
        case Exponential():
            return f"{spell(backoff.base)} × {backoff.factor:g}^(k−1)"
        case Linear():
            return f"{spell(backoff.base)} + {spell(backoff.step)} × (k−1)"
        case Steps(waits=(wait,)):
            return f"always {spell(wait)}"
        case Steps():
            return f"{', '.join(map(spell, backoff.waits))}, and so on"
        case _:
            return "custom function of k"


def _describe_jitter(jitter: Jitter) -> str:
    match jitter:
        case NoJitter():
            return "none"
        case PlusMinus(cap_last=True):
            return f"± {_percent(jitter.fraction)}, at most the cap"
        case PlusMinus():
            return f"± {_percent(jitter.fraction)}, may pass the cap"
        case Bounded():
            return f"± {_percent(jitter.fraction)}, always below the cap"
        case Full():
            return f"anything from {spell(jitter.floor)} up to the wait"
        case Equal():
            return "anything from half the wait up to the wait"
        case _:
            return "custom"


def _percent(fraction: float) -> str:
    return f"{100 * fraction:g} %"
