"""A policy in numbers: how long a job waits after each failure, and between which bounds chance puts it."""

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

ENDLESS = 6
"""Waits that are shown of a policy that only its deadline ends."""

LARGEST_CHANCE = math.nextafter(1.0, 0.0)
"""The last `u` that can be drawn: with it a wait is the latest."""


class Wait(Record, omit_defaults=False):
    """What follows the k-th charged failure, in seconds: before jitter, and the bounds that jitter keeps."""

    failures: int
    wait: float
    earliest: float
    latest: float


class Schedule(Record, omit_defaults=False):
    """All the waits of a policy; of one without a limit on attempts, the first few."""

    name: str
    purpose: str
    max_attempts: int | None
    deadline: float | None
    backoff: str
    jitter: str
    cap: float | None
    waits: tuple[Wait, ...]
    total: float
    """Seconds from the first failure to the last attempt, before jitter; without a limit on attempts, the deadline."""


def schedule_of(policy: Policy, name: str, purpose: str = "") -> Schedule:
    """Work out the numbers of a policy."""
    count = ENDLESS if policy.max_attempts is None else policy.max_attempts - 1
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
    """Write the waits before jitter as people would."""
    waits = ", ".join(spell(wait.wait) for wait in schedule.waits)
    return f"{waits}, …" if schedule.max_attempts is None else waits or "none"


def spell_attempts(schedule: Schedule) -> str:
    """Write the limit on attempts as people would."""
    return "∞" if schedule.max_attempts is None else str(schedule.max_attempts)


def _wait(policy: Policy, failures: int) -> Wait:
    bounds = sorted((policy.delay(failures, 0.0), policy.delay(failures, LARGEST_CHANCE)))
    # The bounds are those of the range that is drawn from; to a millionth of a second the last draw is its end.
    return Wait(
        failures=failures,
        wait=policy.delay(failures),
        earliest=round(bounds[0], 6),
        latest=round(bounds[1], 6),
    )


def _describe(backoff: Backoff) -> str:
    match backoff:
        case Decorrelated():
            return f"from {spell(backoff.base)} to {backoff.factor:g} × the wait before"
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
            return "a function of k"


def _describe_jitter(jitter: Jitter) -> str:
    match jitter:
        case NoJitter():
            return "none"
        case PlusMinus(cap_last=True):
            return f"± {_percent(jitter.fraction)}, never past the cap"
        case PlusMinus():
            return f"± {_percent(jitter.fraction)}, also of the cap"
        case Bounded():
            return f"± {_percent(jitter.fraction)}, below the cap near it"
        case Full():
            return f"anything from {spell(jitter.floor)} up to the wait"
        case Equal():
            return "anything from half the wait up to the wait"
        case _:
            return "of its own kind"


def _percent(fraction: float) -> str:
    return f"{100 * fraction:g} %"
