"""A policy: how often a job may fail, how long it waits in between, and which failures are treated differently."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import force_setattr

from reprieve.core.backoff import STANDARD, Backoff, Capped, Exponential, Formula
from reprieve.core.classify import TABLES
from reprieve.core.duration import Duration, milliseconds, seconds
from reprieve.core.failure import Failure
from reprieve.core.record import Record
from reprieve.core.rule import Rule, Rules, require_agreement
from reprieve.core.values import shown, to_float, whole
from reprieve.core.window import Window
from reprieve.errors import InvalidPolicy

DAY_SECONDS = 86_400.0
DEFAULT_MAX_ATTEMPTS = 10


@dataclass(frozen=True, slots=True, init=False)
class Policy:
    """What happens to the jobs of a task when they fail.

    `max_attempts` limits charged failures and includes the first execution; None means that only the deadline
    limits them. `deadline` counts from enqueue. `max_crashes` limits how often its worker may die with a job,
    `max_parked` how long a job may wait for its dependency.
    """

    max_attempts: int | None
    backoff: Backoff
    rules: tuple[Rules, ...]
    window: Window | None
    deadline: float | None
    max_crashes: int
    max_parked: float

    def __init__(  # noqa: PLR0913 - all parts of a policy: keywords with defaults
        self,
        *,
        max_attempts: int | None = DEFAULT_MAX_ATTEMPTS,
        retries: int | None = None,
        backoff: Backoff | Callable[[int], float] | None = None,
        rules: Sequence[Rules] = TABLES,
        window: Window | None = None,
        deadline: Duration | None = None,
        max_crashes: int = 3,
        max_parked: Duration = 5 * DAY_SECONDS,
    ) -> None:
        """Accept durations as people write them, a plain function as backoff, and `retries` for max_attempts − 1."""
        if retries is not None and max_attempts != DEFAULT_MAX_ATTEMPTS:
            message = "max_attempts and retries exclude each other (max_attempts = retries + 1); give one of the two"
            raise InvalidPolicy(message)
        if retries is not None:
            max_attempts = whole(retries, "retries", InvalidPolicy) + 1
        object.__setattr__(self, "max_attempts", _attempts(max_attempts))
        object.__setattr__(self, "backoff", _backoff(backoff))
        object.__setattr__(self, "rules", _rules(rules))
        object.__setattr__(self, "window", _window(window))
        object.__setattr__(self, "deadline", None if deadline is None else seconds(deadline, "deadline"))
        object.__setattr__(self, "max_crashes", whole(max_crashes, "max_crashes", InvalidPolicy, 1))
        object.__setattr__(self, "max_parked", seconds(max_parked, "max_parked"))
        if self.max_attempts is None and self.deadline is None:
            message = "a policy without max_attempts needs a deadline, or a job could fail forever"
            raise InvalidPolicy(message)
        require_agreement(self.rules)

    def delay(self, failures: int, u: float | None = None, previous: float | None = None) -> float:
        """Return the wait in seconds after that many charged failures; see `Backoff.delay`."""
        return self.backoff.delay(failures, u, previous)

    def rule_for(self, failure: Failure) -> Rule | None:
        """Return the first rule with a backoff or max_attempts that matches this failure or its cause."""
        for rule in self.rules:
            if isinstance(rule, Rule) and (rule.backoff or rule.max_attempts) and rule.matches(failure):
                return rule
        return None if failure.cause is None else self.rule_for(failure.cause)

    def deadline_of(self, created_at: int) -> int | None:
        """Return the time after which a job created at `created_at` must not start."""
        return None if self.deadline is None else created_at + milliseconds(self.deadline)


class Override(Record):
    """What one job or one tenant overrides in a policy; None keeps the policy's value. Waits are in seconds."""

    max_attempts: int | None = None
    retry_delay: float | None = None
    max_retry_delay: float | None = None

    def __post_init__(self) -> None:
        """Refuse values that no policy takes; the others are kept as plain numbers, since they are stored."""
        for name in ("retry_delay", "max_retry_delay"):
            if (wait := getattr(self, name)) is not None:
                force_setattr(self, name, seconds(wait, name))
        force_setattr(self, "max_attempts", _attempts(self.max_attempts))

    @classmethod
    def from_json(cls, options: Mapping[str, object]) -> "Override":
        """Return the override in the JSON options of a job, whose waits are in milliseconds."""
        known = ("max_attempts", "retry_delay", "max_retry_delay")
        if unknown := set(options) - set(known):
            message = f"retry options must be among {', '.join(known)}, got {', '.join(sorted(map(repr, unknown)))}"
            raise InvalidPolicy(message)
        return cls(
            max_attempts=options.get("max_attempts"),  # type: ignore[arg-type]  # checked by the record
            retry_delay=_milliseconds(options, "retry_delay"),
            max_retry_delay=_milliseconds(options, "max_retry_delay"),
        )

    def apply(self, policy: Policy) -> Policy:
        """Return the policy with this override, which takes precedence over the policy's rules too.

        A `retry_delay` doubles with each failure up to `max_retry_delay` (default: one day), without jitter: a wait
        that is given for one job is exact.
        """
        backoff = policy.backoff
        if self.retry_delay is not None:
            cap = DAY_SECONDS if self.max_retry_delay is None else self.max_retry_delay
            backoff = Exponential(self.retry_delay, cap=cap)
        elif self.max_retry_delay is not None:
            backoff = Capped(policy.backoff, self.max_retry_delay)
        attempts = policy.max_attempts if self.max_attempts is None else self.max_attempts
        rules = tuple(
            rule.without(backoff=backoff is not policy.backoff, max_attempts=self.max_attempts is not None)
            if isinstance(rule, Rule)
            else rule
            for rule in policy.rules
        )
        return amend(policy, max_attempts=attempts, backoff=backoff, rules=[rule for rule in rules if rule])


def require_policy(value: object, what: str) -> Policy:
    """Return a policy; raise `InvalidPolicy` for anything else. `what` names it in the error."""
    if isinstance(value, Policy):
        return value
    message = f"{what} must be a Policy, as in Policy(max_attempts=5) or presets.email, got {shown(value)}"
    raise InvalidPolicy(message)


def amend(policy: Policy, **changes: object) -> Policy:
    """Return a copy of the policy with some fields replaced and checked."""
    facts = {name: getattr(policy, name) for name in Policy.__dataclass_fields__}
    return Policy(**{**facts, **changes})


def resolve(default: Policy, *stronger: Policy | Override | None) -> Policy:
    """Return the effective policy: each of `stronger` (task, tenant, job) takes precedence over those before it."""
    policy = default
    for layer in stronger:
        if isinstance(layer, Override):
            policy = layer.apply(policy)
        elif layer is not None:
            policy = layer
    return policy


def _attempts(value: object) -> int | None:
    return None if value is None else whole(value, "max_attempts", InvalidPolicy, 1)


def _rules(value: object) -> tuple[Rules, ...]:
    rules = tuple(value) if isinstance(value, Iterable) else (None,)
    if not all(callable(getattr(rule, "judge", None)) for rule in rules):
        message = f"rules of a policy must be a list of rules, each with a judge function, got {shown(value)}"
        raise InvalidPolicy(message)
    return rules


def _window(value: object) -> Window | None:
    if value is None or isinstance(value, Window):
        return value
    message = f'window of a policy must be a Window, as in Window(closed="22:00-06:00"), got {shown(value)}'
    raise InvalidPolicy(message)


def _backoff(backoff: Backoff | Callable[[int], float] | None) -> Backoff:
    match backoff:
        case None:
            return STANDARD
        case Backoff():
            return backoff
        case _:
            return Formula(backoff)


def _milliseconds(options: Mapping[str, object], name: str) -> float | None:
    value = options.get(name)
    if value is None:
        return None
    number = to_float(value)
    if math.isnan(number):
        message = f"{name} must be a number of milliseconds, got {shown(value)}"
        raise InvalidPolicy(message)
    return seconds(number / 1_000, name)
