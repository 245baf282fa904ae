"""Checks of what callers ask of the audit log, of what they write to it, and of how long it is kept."""

from typing import Final, get_args

from msgspec.structs import replace

from reprieve.core import values
from reprieve.core.audit import Action, Audit, Automatic, SubjectKind
from reprieve.core.duration import seconds
from reprieve.core.ids import parse_id
from reprieve.errors import ValidationError
from reprieve.stores.check import MAX_AT
from reprieve.stores.check_kinds import check_record
from reprieve.stores.protocol import MAX_AUDIT_PAGE, Annotation, AuditFilter, Retention

_TEXTS: Final = ("actor", "name", "tenant")


def check_audit_filter(wanted: AuditFilter, limit: int) -> AuditFilter:
    """Return a filter with plain values, and its scope as its tenant; raise a `ValidationError` for bad values."""
    check_record(wanted, AuditFilter)
    values.whole(limit, "limit of a page of the audit log", ValidationError, 1, MAX_AUDIT_PAGE)
    facts: dict[str, object] = {
        name: values.name(getattr(wanted, name), f"{name} of an audit filter", may_be_empty=True)
        for name in _TEXTS
        if getattr(wanted, name) is not None
    }
    if wanted.action is not None:
        facts["action"] = values.one_of(wanted.action, get_args(Action), "action", ValidationError)
    if wanted.kind is not None:
        facts["kind"] = values.one_of(wanted.kind, get_args(SubjectKind), "kind of a subject", ValidationError)
    elif wanted.name is not None:
        message = (
            f"the name of a subject, {values.shown(wanted.name)}, needs its kind: {', '.join(get_args(SubjectKind))}"
        )
        raise ValidationError(message)
    for name in ("since_at", "until_at"):
        if (at := getattr(wanted, name)) is not None:
            facts[name] = values.whole(at, f"{name} of an audit filter", ValidationError, 0, MAX_AT)
    values.flag(wanted.is_newest_first, "is_newest_first", ValidationError)
    if wanted.since_at is not None and wanted.until_at is not None and wanted.since_at >= wanted.until_at:
        message = f"since_at {wanted.since_at} must be before until_at {wanted.until_at}"
        raise ValidationError(message)
    if wanted.scope is not None:
        scope = values.name(wanted.scope, "scope of an audit filter")
        if wanted.tenant not in (None, scope):
            message = f"there is no tenant {values.shown(wanted.tenant)}"
            raise ValidationError(message)
        facts |= {"tenant": scope, "scope": scope}
    return replace(wanted, **facts)


def check_audit_retention(retention: Retention) -> Retention:
    """Return a retention with plain values; raise a `ValidationError` for one that keeps no audit log."""
    kept = seconds(retention.audit_for, "audit_for")
    if kept <= 0:
        message = "audit_for must be more than 0 seconds: what people did must not be forgotten at once"
        raise ValidationError(message)
    return replace(retention, audit_for=kept)


def check_cancel_request(annotation: Annotation) -> Annotation:
    """Return a cancel request as it is stored; raise a `ValidationError` for one without a name or a reason."""
    if annotation.cancel is None:
        return annotation
    audit = Audit(
        by=annotation.cancel.by,
        reason=annotation.cancel.reason,
        request_id=annotation.request_id,
        operation=annotation.operation,
    )
    return replace(
        annotation, job_id=parse_id(annotation.job_id), request_id=audit.request_id, operation=audit.operation
    )


def check_author(author: object) -> None:
    """Raise a `ValidationError` for what does not say who makes a write."""
    if not isinstance(author, Audit | Automatic):
        message = f"a write needs an Audit (a person, with a reason) or an Automatic, got {values.shown(author)}"
        raise ValidationError(message)
