"""The classification of a failure: its kind, its scope, and the rule that decided."""

import math
from datetime import timedelta
from typing import Literal, TypeAlias, get_args

from msgspec.structs import force_setattr

from reprieve.core.duration import clamp, seconds
from reprieve.core.record import Record
from reprieve.core.text import clean, clean_code
from reprieve.core.values import flag, one_of, shown, text, to_float
from reprieve.errors import InvalidRule

Kind: TypeAlias = Literal["transient", "throttled", "permanent", "poison", "unknown"]
"""Transient passes by itself; throttled asks us to slow down; permanent never passes; poison kills its worker; unknown
is retried like transient, but is not counted against the dependency."""

Scope: TypeAlias = Literal["job", "tenant", "dependency"]
"""Which jobs would fail in the same way now: this one, all of its tenant, or all that call the dependency."""


class Verdict(Record):
    """The classification of one failure."""

    kind: Kind
    scope: Scope = "job"
    code: str = ""
    retry_after: float | None = None
    rule: str = "unknown"
    is_unavailable: bool = False
    """Whether the dependency could not be reached, or refused service before it read the request: every job would have
    failed, so a single job is enough evidence."""

    def __post_init__(self) -> None:
        """Raise `InvalidRule` or `InvalidDuration` for a value of the wrong type, and clean the texts.

        Rules of the application make verdicts, and what a verdict says is stored with the job.
        """
        force_setattr(self, "kind", one_of(self.kind, get_args(Kind), "kind of a verdict", InvalidRule))
        force_setattr(self, "scope", one_of(self.scope, get_args(Scope), "scope of a verdict", InvalidRule))
        force_setattr(self, "code", clean_code(text(self.code, "code of a verdict", InvalidRule)))
        force_setattr(self, "rule", clean(text(self.rule, "rule of a verdict", InvalidRule)))
        flag(self.is_unavailable, "is_unavailable of a verdict", InvalidRule)
        if self.retry_after is not None:
            force_setattr(self, "retry_after", _wait(self.retry_after))

    @property
    def is_retryable(self) -> bool:
        """Whether another attempt can help."""
        return self.kind not in ("permanent", "poison")


def _wait(value: object) -> float:
    """Return the wait that a dependency asks for. A rule may compute it, so one in the past is 0."""
    if isinstance(value, str | timedelta):
        return seconds(value, "retry_after of a verdict")
    length = to_float(value)
    if math.isnan(length):
        message = f"retry_after of a verdict must be a number of seconds, got {shown(value)}"
        raise InvalidRule(message)
    return clamp(length)
