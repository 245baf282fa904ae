"""What we make of a failure: its kind, whose fault it is, and which rule said so."""

from typing import Literal, TypeAlias

from reprieve.core.record import Record

Kind: TypeAlias = Literal["transient", "throttled", "permanent", "poison", "unknown"]
"""Transient passes by itself; throttled asks us to slow down; permanent never passes; poison kills its
worker; unknown is retried like transient, but blames nobody."""

Scope: TypeAlias = Literal["job", "tenant", "dependency"]
"""Who else would fail in the same way now: nobody, the tenant's other jobs, or everybody who calls it."""


class Verdict(Record):
    """The classification of one failure."""

    kind: Kind
    scope: Scope = "job"
    code: str = ""
    retry_after: float | None = None
    rule: str = "unknown"
    is_unavailable: bool = False
    """Whether the dependency could not be reached, or refused service before it looked at the request: no job could
    have fared better, so one job is enough to say it."""

    @property
    def is_retryable(self) -> bool:
        """Whether another attempt can help."""
        return self.kind not in ("permanent", "poison")
