"""Checks of requests for causes, before a store sees them."""

from typing import get_args

from msgspec.structs import replace

from reprieve.core import values
from reprieve.errors import ValidationError
from reprieve.stores.check_kinds import check_cursor, check_record, several
from reprieve.stores.protocol import DEAD_HOURS, MAX_CAUSES_PER_PAGE, CauseGrouping, CauseOrder, CauseRequest

_CHOICES = {"by": get_args(CauseGrouping), "of": ("dead", "living"), "order": get_args(CauseOrder)}


def check_cause_request(request: CauseRequest) -> CauseRequest:
    """Return a request with plain values; raise a `ValidationError` for one that contradicts itself."""
    check_record(request, CauseRequest)
    facts: dict[str, object] = {"cursor": check_cursor(request.cursor)}
    for field, choices in _CHOICES.items():
        facts[field] = values.text(getattr(request, field), f"{field} of causes", ValidationError)
        if facts[field] not in choices:
            message = f"{field} of causes must be one of {', '.join(choices)}, got {values.shown(facts[field])}"
            raise ValidationError(message)
    facts["limit"] = values.whole(request.limit, "limit", ValidationError, 1, MAX_CAUSES_PER_PAGE)
    facts["hours"] = values.whole(request.hours, "hours", ValidationError, 0, DEAD_HOURS)
    if request.names is not None:
        facts["names"] = _check_names(request)
    _check_scope(request)
    if request.tenant is not None:
        facts["tenant"] = values.name(request.tenant, "tenant", may_be_empty=True)
    facts["fingerprint"] = values.name(request.fingerprint, "fingerprint", may_be_empty=True)
    return replace(request, **facts)


def _check_names(request: CauseRequest) -> tuple[str, ...]:
    names = several(request.names, "names of causes")
    if len(names) > MAX_CAUSES_PER_PAGE or request.cursor:
        why = "and no cursor: they are on one page" if request.cursor else f"got {len(names)}"
        message = f"a request for causes takes {MAX_CAUSES_PER_PAGE} names at most, {why}"
        raise ValidationError(message)
    return tuple(dict.fromkeys(values.name(name, request.by, may_be_empty=True) for name in names))


def _check_scope(request: CauseRequest) -> None:
    problem = ""
    if request.tenant is not None and request.by != "fingerprint":
        problem = f"the causes of one tenant are read by fingerprint, not by {request.by}"
    elif request.fingerprint and request.by != "tenant":
        problem = f"what has one fingerprint is read by tenant, not by {request.by}"
    elif request.by == "death" and request.of == "living":
        problem = "living jobs have no kind of death; read their failures by fingerprint, code, tenant or task"
    if problem:
        raise ValidationError(problem)
