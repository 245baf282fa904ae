"""Cursors of searches: where each partition goes on, bound to the filter, the order and the format that made them."""

import base64
import hashlib
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import msgspec

from reprieve.errors import InvalidCursor
from reprieve.stores.places import PLACES, Key, LaneGroup, Place, PlaceKey, Position
from reprieve.stores.protocol import Filter, Order

FORMAT: Final = 1
"""Of cursors. A release that searches in another order has another number."""

MAX_CURSOR_CHARS: Final = 1 << 19
"""More than the longest cursor: 64 partitions that each stand between lanes with long names which begin alike."""

IsKey: TypeAlias = Callable[[Place, PlaceKey], bool]
"""Returns whether a store can go on after a key of a place."""

_DIGEST_BYTES: Final = 9
_encode = msgspec.msgpack.Encoder(enc_hook=sorted).encode


class _Cursor(msgspec.Struct, array_like=True, frozen=True):
    format: int
    search: bytes
    positions: list[tuple[int, tuple[tuple[Key, Key] | None, int, Key] | None] | None]


_decode = msgspec.msgpack.Decoder(_Cursor).decode


def write_cursor(wanted: Filter, order: Order, positions: Sequence[Position | None]) -> str:
    """Return the cursor of a search that goes on from these positions, one for each partition; None: it is done."""
    packed = _encode(_Cursor(FORMAT, _digest(wanted, order), list(positions)))
    return base64.urlsafe_b64encode(packed).decode()


def read_cursor(cursor: str, wanted: Filter, order: Order, is_key: IsKey) -> list[Position | None]:
    """Return the positions of a cursor; raise `InvalidCursor` for one of another search or release."""
    try:
        read = _decode(base64.urlsafe_b64decode(cursor[:MAX_CURSOR_CHARS].encode()))
    except (ValueError, msgspec.MsgspecError):
        raise _refused(cursor, "is not one of this store") from None
    if read.format != FORMAT:
        raise _refused(cursor, "is of another release")
    if read.search != _digest(wanted, order):
        raise _refused(cursor, "is of another filter or order")
    positions: list[Position | None] = []
    for position in read.positions:
        if position is None:
            positions.append(None)
            continue
        place, key = position[0], None if position[1] is None else _key(*position[1])
        if not 0 <= place < len(PLACES) or (key is not None and not is_key(PLACES[place], key)):
            raise _refused(cursor, "is not one of this store")
        positions.append(Position(place, key))
    return positions


def _key(group: tuple[Key, Key] | None, at: int, job: Key) -> PlaceKey:
    return PlaceKey(None if group is None else LaneGroup(*group), at, job)


def _digest(wanted: Filter, order: Order) -> bytes:
    """Return what tells searches apart; the limit after which a job counts as stuck may change on the way."""
    fields = {name: getattr(wanted, name) for name in wanted.__struct_fields__ if name != "stuck_after"}
    return hashlib.blake2b(_encode([fields, order]), digest_size=_DIGEST_BYTES).digest()


def _refused(cursor: str, why: str) -> InvalidCursor:
    message = f"cursor {cursor[:80]!r} {why}; begin again without one"
    return InvalidCursor(message)
