"""SMTP replies: RFC 5321 codes and RFC 3463 enhanced status codes.

The class of the enhanced status decides (4 is transient, 5 permanent), else the first digit of the code. The tables
below add the scope: a full mailbox concerns one recipient, a full server all of them.
"""

import re
from http import HTTPStatus

from reprieve.core.failure import Failure
from reprieve.core.verdict import Scope, Verdict

_REPLIES: dict[str, Scope] = {
    "421": "dependency",  # service not available, closing the channel
    "432": "tenant",  # a password transition is needed
    "450": "job",  # mailbox unavailable
    "451": "dependency",  # local error in processing
    "452": "dependency",  # insufficient system storage
    "454": "dependency",  # temporary authentication or TLS failure
    "455": "job",  # server unable to accommodate parameters
    "500": "job",
    "501": "job",
    "502": "job",
    "503": "job",
    "504": "job",
    "521": "job",  # the host accepts no mail
    "530": "tenant",  # authentication required
    "534": "tenant",
    "535": "tenant",  # credentials invalid
    "538": "tenant",
    "550": "job",
    "551": "job",
    "552": "job",
    "553": "job",
    "554": "job",
    "555": "job",
    "556": "job",  # the domain accepts no mail
}
"""The replies that SMTP defines, each with its scope when no enhanced status says more."""

_HTTP_ONLY = {str(status.value) for status in HTTPStatus} - set(_REPLIES)

_RECIPIENTS = {("5", "3"), ("7", "1")}
"""Too many recipients, and the status that most servers give a greylisted recipient."""

_GREETINGS = {
    "smtplib.SMTPConnectError",
    "smtplib.SMTPHeloError",
    "aiosmtplib.errors.SMTPConnectResponseError",
    "aiosmtplib.errors.SMTPHeloError",
}
"""What libraries raise before a mail transaction begins: the server has not seen a mail yet."""

_GREYLISTED = re.compile(r"gr[ae]y-?list", re.IGNORECASE)

GREYLISTED_SECONDS = 300.0
"""How long a greylisted mail waits when the server names no time: servers reject retries in the first minutes."""

_RATE = re.compile(
    r"too many (?:connections|messages|requests|emails|mails|concurrent)|\brate\b|throttl|slow down"
    r"|sending (?:limit|quota)",
    re.IGNORECASE,
)


def judge(failure: Failure) -> Verdict | None:
    """Return the verdict on an SMTP reply; a bare number counts as one unless only HTTP defines it."""
    code = failure.code
    if failure.protocol not in ("", "smtp") or not _is_reply(failure):
        return None
    if (failure.enhanced or code)[0] == "5":
        return Verdict(kind="permanent", scope=_REPLIES.get(code, "job"), code=code, rule=_rule(failure))
    rate = _RATE.search(failure.message)
    is_greylisted = _GREYLISTED.search(failure.message) is not None
    scope = _scope(failure, is_rate=rate is not None, is_greylisted=is_greylisted)
    is_greeting = code == "421" and not _GREETINGS.isdisjoint(failure.types)
    return Verdict(
        kind="throttled" if rate else "transient",
        scope=scope,
        code=code,
        retry_after=failure.retry_after or (GREYLISTED_SECONDS if is_greylisted else None),
        rule=_rule(failure),
        is_unavailable=is_greeting and scope == "dependency" and rate is None,
    )


def _is_reply(failure: Failure) -> bool:
    code = failure.code
    if failure.enhanced or failure.protocol == "smtp":
        return code[:1] in ("4", "5")
    # A bare number is ambiguous: 503 is a refused command here and an outage in HTTP. The codes of SMTP come
    # first, then those of HTTP; a code that neither defines goes by its first digit.
    return code in _REPLIES or (code.isdigit() and code[:1] in ("4", "5") and code not in _HTTP_ONLY)


def _scope(failure: Failure, *, is_rate: bool, is_greylisted: bool) -> Scope:
    _, subject, detail = failure.enhanced.split(".") if failure.enhanced else ("", "", "")
    # A greylisted recipient, a full mailbox or a busy user concerns no other job.
    if subject in ("1", "2") or (subject, detail) in _RECIPIENTS or is_greylisted:
        return "job"
    if is_rate or subject in ("3", "4", "7"):
        return "dependency"
    return _REPLIES.get(failure.code, "job" if subject else "dependency")


def _rule(failure: Failure) -> str:
    return f"smtp:{failure.enhanced or failure.code}"
