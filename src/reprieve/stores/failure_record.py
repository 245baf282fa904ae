"""The packed record of a group of failures, the same in every store; `last_seen_at` is kept beside it."""

import msgspec
from msgspec.structs import replace

from reprieve.stores.protocol import FailureGroup

pack_group = msgspec.msgpack.Encoder().encode
"""Pack a group of failures."""

_decode = msgspec.msgpack.Decoder(FailureGroup).decode


def unpack_group(packed: bytes, last_seen_at: int) -> FailureGroup | None:
    """Return a group of failures; None if its record cannot be read: it only explains what jobs say themselves."""
    try:
        return replace(_decode(packed), last_seen_at=last_seen_at)
    except msgspec.MsgspecError:
        return None
