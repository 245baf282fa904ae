"""The fields of limits, as stores keep which of them a name has of its own."""

from collections.abc import Iterable
from typing import Final

from msgspec import UNSET

from reprieve.stores.protocol import LimitUpdate, Pause

OWN_BITS: Final = {"permits": 1, "max_running": 2, "rate": 4, "pauses": 8}
"""The bit of each field that has a default. A field without its bit has the value of the default."""

PAUSE_BITS: Final[dict[Pause, int]] = {"schedule": 1, "retry": 2}
"""The bit of each wait that a queue may pause."""


def own_fields(bits: int) -> tuple[str, ...]:
    """Return the fields that a name has of its own."""
    return tuple(field for field, bit in OWN_BITS.items() if bits & bit)


def set_fields(update: LimitUpdate) -> list[str]:
    """Return the fields that an update sets, also to the default."""
    return [field for field in OWN_BITS if getattr(update, field) is not UNSET]


def owned_bits(update: LimitUpdate) -> int:
    """Return the fields that are the name's own after an update."""
    return sum(OWN_BITS[field] for field in set_fields(update) if getattr(update, field) != "default")


def inherited_bits(update: LimitUpdate) -> int:
    """Return the fields that are those of the default after an update."""
    return sum(OWN_BITS[field] for field in set_fields(update) if getattr(update, field) == "default")


def pauses_of(bits: int) -> tuple[Pause, ...]:
    """Return the pauses of a queue."""
    return tuple(pause for pause, bit in PAUSE_BITS.items() if bits & bit)


def pause_bits(pauses: Iterable[Pause]) -> int:
    """Return the pauses of a queue as bits."""
    return sum(PAUSE_BITS[pause] for pause in set(pauses))
