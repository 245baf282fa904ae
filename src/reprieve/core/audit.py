"""Audit entries: what people did to which thing, when and why.

A write by a person names its `Audit`, a write by a program says that it is `Automatic`. There is no third kind, and no
default: the type of a write asks for one of the two.
"""

from collections.abc import Mapping
from typing import Literal, TypeAlias

import msgspec
from msgspec.structs import force_setattr

from reprieve.core import values
from reprieve.core.job import Job, Signed
from reprieve.core.record import Record
from reprieve.core.redact import redact
from reprieve.core.text import MAX_PERSON_CHARS, clean
from reprieve.errors import ValidationError

Action: TypeAlias = Literal[
    "retry",
    "cancel",
    "revive",
    "limit",
    "weight",
    "pause",
    "resume",
    "hold",
    "release",
    "configuration",
    "prune",
    "purge",
    "credits",
]
"""What a person did. Entries of later releases may have other words, and are read all the same."""

SubjectKind: TypeAlias = Literal["job", "queue", "tenant", "task", "dependency", "group", "tenant_dependency", "entry"]
"""What it was done to."""

Facts: TypeAlias = dict[str, str | int | float | bool | None]
"""What a subject was before an action, or after it: a flat JSON object."""

MAX_FACTS_BYTES = 4_096
"""Bytes of JSON that the facts before or after an action may have."""

_STORED_NUMBERS = range(-(1 << 63), 1 << 64)
"""Whole numbers that every format keeps."""

_encode_json = msgspec.json.Encoder().encode


class Audit(Signed):
    """A person acts: who, why, and the request and operation that the action is part of."""

    request_id: str = ""
    """The id of the request, such as that of an HTTP call, by which logs of other systems find it."""
    operation: str = ""
    """The operation, such as a retry of many jobs, that the action is one step of."""

    def __post_init__(self) -> None:
        """Clean all texts; raise a `ValidationError` without a name or a reason."""
        Signed.__post_init__(self)
        for name in ("request_id", "operation"):
            text = values.text(getattr(self, name), name, ValidationError)
            force_setattr(self, name, clean(text, MAX_PERSON_CHARS))
        if not self.by or not self.reason:
            message = "a request needs a name (by) and a reason; both are kept in the audit trail"
            raise ValidationError(message)


class Automatic(Record):
    """A program acts by itself. It leaves no audit entry: the audit log has what people did."""

    by: str
    """The part of the program, such as "gates"."""

    def __post_init__(self) -> None:
        """Raise a `ValidationError` for a part without a name."""
        force_setattr(self, "by", values.name(self.by, "the part of a program that acts by itself"))


Author: TypeAlias = Audit | Automatic
"""Who makes a write: a person, or a program by itself."""


class AuditEntry(Record):
    """One action of one person."""

    at: int
    actor: str
    """Who did it."""
    action: str
    """What was done, one of the words of `Action`."""
    kind: str
    """What it was done to, one of the words of `SubjectKind`."""
    name: str
    """Which of them: the id of a job, the key of an entry, the name of anything else; empty for the default of all."""
    tenant: str = ""
    """The tenant whose thing it is; empty if it is no tenant's."""
    queue: str = ""
    reason: str
    before: Facts = msgspec.field(default_factory=dict)
    after: Facts = msgspec.field(default_factory=dict)
    request_id: str = ""
    operation: str = ""
    position: int = 0
    """Its position in the log of its store; no other entry of the store has it. 0: it is not stored yet."""


def checked_facts(facts: Mapping[str, object], what: str) -> Facts:
    """Return facts without secrets; raise a `ValidationError` for facts that are not flat JSON, or too large."""
    plain: Facts = {}
    for name, value in facts.items():
        key = values.name(name, f"the name of a fact {what} an action")
        if isinstance(value, str):
            # A fact may be named like a secret: then its value is one.
            plain[key] = redact(f"{key}={values.plain(value)}").removeprefix(f"{key}=")
        elif value is None or isinstance(value, bool | float) or (isinstance(value, int) and value in _STORED_NUMBERS):
            plain[key] = value
        else:
            message = f"{key} {what} an action must be text, a number, true, false or null, got {values.shown(value)}"
            raise ValidationError(message)
    try:
        size = len(_encode_json(plain))
    except (msgspec.MsgspecError, OverflowError, UnicodeEncodeError) as error:
        message = f"the facts {what} an action must be JSON: {error}"
        raise ValidationError(message) from None
    if size > MAX_FACTS_BYTES:
        message = f"the facts {what} an action have {size:,} bytes of JSON, and may have {MAX_FACTS_BYTES:,}"
        raise ValidationError(message)
    return plain


def facts_of_job(job: Job) -> Facts:
    """Return what an audit entry tells of a job before or after a move."""
    facts: Facts = {"state": job.state, "due_at": job.due_at, "granted": job.granted}
    return facts if job.death is None else facts | {"death": job.death}
