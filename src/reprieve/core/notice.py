"""Notices: what happened to something that is no job, such as a gate, a limit or a session."""

from typing import Literal, TypeAlias, get_args

import msgspec
from msgspec.structs import force_setattr

from reprieve.core.record import Record
from reprieve.core.text import MAX_PERSON_CHARS, clean

NoticeName: TypeAlias = Literal[
    "GateHeld",
    "GateProbing",
    "GateOpened",
    "LimitChanged",
    "QueuePaused",
    "QueueResumed",
    "WeightChanged",
    "SessionOpened",
    "SessionEnded",
    "SessionDied",
    "AlertRaised",
    "AlertResolved",
    "JobsArchived",
    "CreditsChanged",
    "ConfigurationChanged",
]
"""What happened. A session that died was declared dead because its lease ran out; one that ended said so."""

NOTICE_NAMES: frozenset[str] = frozenset(get_args(NoticeName))

Fact: TypeAlias = str | int | float | bool | None


class Notice(Record):
    """Something that happened, and not to a job."""

    at: int
    name: NoticeName
    kind: str = ""
    """What it happened to: a dependency, a queue, a tenant, a session …"""
    subject: str = ""
    """The name of that."""
    queue: str = ""
    tenant: str = ""
    by: str = ""
    """The person who did it; empty if no person did."""
    reason: str = ""
    facts: dict[str, Fact] = msgspec.field(default_factory=dict)
    """What else is to be known, such as the new values."""

    def __post_init__(self) -> None:
        """Keep who and why as one printable line each."""
        force_setattr(self, "by", clean(self.by, MAX_PERSON_CHARS))
        force_setattr(self, "reason", clean(self.reason))
