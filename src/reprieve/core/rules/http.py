"""HTTP status codes, as the client of an external service sees them."""

from http import HTTPStatus

from reprieve.core.failure import Failure
from reprieve.core.verdict import Kind, Scope, Verdict

_STATUSES: dict[str, tuple[Kind, Scope]] = {
    "401": ("permanent", "tenant"),
    "402": ("permanent", "tenant"),
    "403": ("permanent", "tenant"),
    "407": ("permanent", "tenant"),
    "408": ("transient", "dependency"),
    "409": ("transient", "job"),  # a conflict is over when the other writer is done
    "421": ("transient", "dependency"),
    "423": ("transient", "job"),
    "425": ("transient", "job"),
    "429": ("throttled", "dependency"),
    "501": ("permanent", "job"),
    "505": ("permanent", "job"),
    "511": ("permanent", "dependency"),
}
_UNAVAILABLE = "503"
_KNOWN = {str(status.value) for status in HTTPStatus}


def judge(failure: Failure) -> Verdict | None:
    """Return the verdict on an HTTP status; a bare number counts as one when HTTP defines it."""
    code = failure.code
    if failure.protocol != "http" and (failure.protocol or code not in _KNOWN):
        return None
    kind, scope = _STATUSES.get(code) or _by_class(code)
    return Verdict(
        kind=kind,
        scope=scope,
        code=code,
        retry_after=failure.retry_after,
        rule=f"http:{code}",
        is_unavailable=code == _UNAVAILABLE,
    )


def _by_class(code: str) -> tuple[Kind, Scope]:
    # Below 500 the request itself is at fault, and a redirect that was not followed fails again.
    return ("transient", "dependency") if code >= "500" else ("permanent", "job")
