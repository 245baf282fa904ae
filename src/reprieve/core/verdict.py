"""The classification of a failure: its kind, its scope, and the rule that decided."""

from typing import Literal, TypeAlias

from reprieve.core.record import Record

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

    @property
    def is_retryable(self) -> bool:
        """Whether another attempt can help."""
        return self.kind not in ("permanent", "poison")
