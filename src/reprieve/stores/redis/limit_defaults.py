"""Defaults of limits, as scripts store them: see limit_defaults.lua."""

from collections.abc import Iterable, Mapping
from typing import TypeAlias

import msgspec
from msgspec import UNSET

from reprieve.core.rate import Rate
from reprieve.stores.limit_fields import OWN_BITS, pauses_of
from reprieve.stores.protocol import LimitUpdate, Subject
from reprieve.stores.redis.limit_updates import SUBJECT_LETTERS

Maybe: TypeAlias = int | bool
"""A number, or False for none."""


class Default(msgspec.Struct, frozen=True):
    """A default of one subject and scope."""

    own: int
    permits: Maybe = False
    max_running: Maybe = False
    count: Maybe = False
    window: float = 0.0
    """In seconds; of no meaning without a count."""
    pauses: int = 0

    @property
    def rate(self) -> Rate | None:
        """Its rate."""
        return rate_of(self.count, self.window)


_decode = msgspec.msgpack.Decoder(Default).decode
_NONE = Default(own=0)


def number_of(stored: Maybe) -> int | None:
    """Return a number that scripts store; None for none."""
    return None if stored is False else int(stored)


def rate_of(count: Maybe, window: float) -> Rate | None:
    """Return a rate that scripts store."""
    return Rate(count=int(count), window=float(window)) if count else None


class Defaults:
    """The defaults of a partition."""

    def __init__(self, packed: Mapping[bytes, bytes]) -> None:
        """Take the fields of `:limit_defaults`."""
        self._by_field = {field.decode(): _decode(data) for field, data in packed.items()}

    def of(self, subject: Subject, scope: str, field: str) -> Default:
        """Return the default that has a field for the names of a scope; one without limits if there is none."""
        letter, bit = SUBJECT_LETTERS[subject], OWN_BITS[field]
        found = (self._by_field.get(letter + scope, _NONE), self._by_field.get(letter, _NONE))
        return next((default for default in found if default.own & bit), _NONE)

    def updates(self) -> Iterable[LimitUpdate]:
        """Return updates that would set them again."""
        subjects = {letter: subject for subject, letter in SUBJECT_LETTERS.items()}
        for field, default in sorted(self._by_field.items()):
            subject, scope = subjects[field[0]], field[1:]
            owns = {name for name, bit in OWN_BITS.items() if default.own & bit}
            yield LimitUpdate(
                subject=subject,
                name=None,
                queue=scope if subject == "tenant" else "",
                dependency=scope if subject == "tenant_dependency" else "",
                permits=number_of(default.permits) if "permits" in owns else UNSET,
                max_running=number_of(default.max_running) if "max_running" in owns else UNSET,
                rate=default.rate if "rate" in owns else UNSET,
                pauses=pauses_of(default.pauses) if "pauses" in owns else UNSET,
            )
