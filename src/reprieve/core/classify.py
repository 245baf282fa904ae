"""From a failure to a verdict: the first rule that matches decides."""

from collections.abc import Sequence

from reprieve.core.failure import Error, Failure, read
from reprieve.core.network import UNREACHABLE
from reprieve.core.policy_error import OnError, ignore
from reprieve.core.rule import Rules
from reprieve.core.rules import http, python, ses, smtp
from reprieve.core.values import shown
from reprieve.core.verdict import Verdict
from reprieve.errors import InvalidRule

TABLES: tuple[Rules, ...] = (smtp, ses, http)
"""The default tables; Python's exceptions always come last."""


def classify(error: Error, *, rules: Sequence[Rules] = TABLES, dependency: str = "", now: int | None = None) -> Verdict:
    """Classify an exception, a message such as `"550 4.7.1 greylisted"`, or a bare code.

    `rules` are tried in order, then Python's exceptions. The first table that knows a bare number decides: with the
    default order 503 is SMTP's refused command; with `rules=[rules.http]` it is an outage. `now`, in milliseconds, is
    needed for a Retry-After header that holds a date.
    """
    return judge(read(error, dependency=dependency, now=now), rules)


def judge(failure: Failure, rules: Sequence[Rules], on_error: OnError = ignore) -> Verdict:
    """Return the verdict on a failure. A rule that raises is skipped, and `on_error` is called."""
    for table in (*rules, python):
        verdict = _ask(table, failure, on_error)
        if verdict is not None:
            return verdict
    # An unknown wrapper does not hide a known cause: the cause's scope and push-back count. But the wrapper is
    # still an unknown exception, so it is retried even if its cause alone would not be.
    if failure.cause is not None:
        verdict = judge(failure.cause, rules, on_error)
        if verdict.is_retryable:
            return verdict
    # Without a connection the class of the exception does not matter.
    if failure.network in UNREACHABLE:
        return python.unreachable(failure)
    return Verdict(kind="unknown", code=failure.code or failure.type, retry_after=failure.retry_after, rule="unknown")


def _ask(table: Rules, failure: Failure, on_error: OnError) -> Verdict | None:
    try:
        return _require_verdict(table.judge(failure))
    except Exception as error:  # noqa: BLE001 - a table may be application code: a bug in it must not hide the real error
        on_error("rules", error)
        return None


def _require_verdict(value: object) -> Verdict | None:
    if value is None or isinstance(value, Verdict):
        return value
    message = f"a rule must return a Verdict or None, got {shown(value)}"
    raise InvalidRule(message)
