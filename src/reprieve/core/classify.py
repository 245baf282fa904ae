"""From a failure to a verdict: the first rule that knows it decides."""

from collections.abc import Sequence

from reprieve.core.complaint import Complain, ignore
from reprieve.core.failure import Error, Failure, read
from reprieve.core.network import UNREACHABLE
from reprieve.core.rule import Rules
from reprieve.core.rules import http, python, ses, smtp
from reprieve.core.verdict import Verdict

TABLES: tuple[Rules, ...] = (smtp, ses, http)
"""The tables that are asked when nobody names others; Python's exceptions always come last."""


def classify(error: Error, *, rules: Sequence[Rules] = TABLES, dependency: str = "", now: int | None = None) -> Verdict:
    """Classify an exception, a message such as `"550 4.7.1 greylisted"`, or a bare code.

    `rules` are asked in order, then Python's exceptions. A bare number is read as the first table that
    knows it: with the default order 503 is SMTP's refused command; with `rules=[rules.http]` an outage.
    `now`, in milliseconds, dates a Retry-After that names a moment.
    """
    return judge(read(error, dependency=dependency, now=now), rules)


def judge(failure: Failure, rules: Sequence[Rules], complain: Complain = ignore) -> Verdict:
    """Judge facts that were read before. Rules that raise are passed over, and `complain` is told."""
    for table in (*rules, python):
        verdict = _ask(table, failure, complain)
        if verdict is not None:
            return verdict
    # A wrapper that nobody knows does not hide a known cause: its blame and its push-back count. But it is
    # still an unknown exception, so it is retried even if what it wraps alone would not be.
    if failure.cause is not None:
        verdict = judge(failure.cause, rules, complain)
        if verdict.is_retryable:
            return verdict
    # Which class it is does not matter when nothing answered.
    if failure.network in UNREACHABLE:
        return python.unreachable(failure)
    return Verdict(kind="unknown", code=failure.code or failure.type, retry_after=failure.retry_after, rule="unknown")


def _ask(table: Rules, failure: Failure, complain: Complain) -> Verdict | None:
    try:
        return table.judge(failure)
    except Exception as error:  # noqa: BLE001 - a table may be anybody's code: one that is broken must not hide the real error
        complain("rules", error)
        return None
