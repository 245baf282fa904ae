"""Cursors of pages of names, and the names that such a page may have."""

from typing import Final

import msgspec

from reprieve.errors import InvalidCursor

AFTER_ALL_NAMES: Final = "\U0010ffff"
"""Sorts after every name, since names are printable."""

NEXT: Final = "\x01"
"""What makes a text the next one after it that a name can be."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(tuple[str, str, str]).decode

Parts = tuple[str, str, str]


def write_cursor(parts: Parts) -> str:
    """Return the cursor of three texts."""
    return _encode(parts).decode()


def read_cursor(cursor: str) -> Parts:
    """Return the texts of a cursor, empty ones of an empty cursor; raise `InvalidCursor` for any other text."""
    if not cursor:
        return "", "", ""
    try:
        return _decode(cursor)
    except msgspec.MsgspecError as error:
        message = f"cursor {cursor[:80]!r} does not belong to this read; begin again without one"
        raise InvalidCursor(message) from error
