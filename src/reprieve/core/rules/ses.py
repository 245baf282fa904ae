"""Amazon SES and the other AWS services: errors by their code."""

from reprieve.core.failure import Failure
from reprieve.core.verdict import Kind, Scope, Verdict

_CODES: dict[tuple[Kind, Scope], str] = {
    ("throttled", "dependency"): """
        Throttling ThrottledException TooManyRequests RequestLimitExceeded RequestThrottled SlowDown
        BandwidthLimitExceeded LimitExceeded PriorRequestNotComplete ProvisionedThroughputExceeded
        SendingQuotaExceeded MaxSendRateExceeded
    """,
    ("transient", "dependency"): """
        ServiceUnavailable ServiceFailure InternalFailure InternalError InternalServerError InternalServiceError
        RequestTimeout RequestTimedOut AccountSendingPaused ConfigurationSetSendingPaused SendingPaused
    """,
    ("transient", "tenant"): "ExpiredToken RequestExpired RequestTimeTooSkewed",
    ("permanent", "tenant"): """
        MailFromDomainNotVerified FromEmailAddressNotVerified ConfigurationSetDoesNotExist AccountSuspended
        AccessDenied AuthFailure InvalidClientTokenId UnrecognizedClient SignatureDoesNotMatch
        MissingAuthenticationToken OptInRequired NotAuthorized
    """,
    ("permanent", "job"): """
        MessageRejected InvalidParameterValue InvalidParameterCombination InvalidParameter MissingParameter
        InvalidAction InvalidQueryParameter MalformedQueryString MalformedInput Validation BadRequest NotFound
        TemplateDoesNotExist InvalidTemplate MissingRenderingAttribute InvalidRenderingParameter
    """,
}
_UNAVAILABLE = "ServiceUnavailable"
_JUDGEMENTS: dict[str, tuple[Kind, Scope]] = {
    code: judgement for judgement, codes in _CODES.items() for code in codes.split()
}


def judge(failure: Failure) -> Verdict | None:
    """Return the verdict on an AWS error code, with or without the suffix Exception or Error."""
    code = failure.code
    if failure.protocol not in ("", "aws") or not code:
        return None
    name = code.removesuffix("Exception").removesuffix("Error")
    judgement = _JUDGEMENTS.get(code) or _JUDGEMENTS.get(name)
    if judgement is None:
        return None
    kind, scope = judgement
    return Verdict(
        kind=kind,
        scope=scope,
        code=code,
        retry_after=failure.retry_after,
        rule=f"ses:{name}",
        is_unavailable=name == _UNAVAILABLE,
    )
