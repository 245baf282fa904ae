"""Leases: one row for each claim of a session, with the jobs that it took and that still run."""

from typing import Final

import msgspec

MAX_CLAIM_NUMBER: Final = 0xFFFF_FFFF
"""The largest number of a claim: a lease's id holds the session's id in its high bits and this in its low 32."""


class LeasedJob(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A job in a lease: where its row counts, and the version that the attempt has."""

    lane: int
    version: int


pack_lease = msgspec.msgpack.Encoder().encode
"""Pack the leased jobs of one claim, by the ids of their rows."""

unpack_lease = msgspec.msgpack.Decoder(dict[int, LeasedJob]).decode
"""Return the leased jobs of one claim, by the ids of their rows."""


def packed_row(row: int) -> bytes:
    """Return the id of a row as it stands in a packed lease, for a statement that looks for it there."""
    return pack_lease(row)


def lease_ids(session: int, since: int = 0, up_to: int = MAX_CLAIM_NUMBER) -> tuple[int, int]:
    """Return the first and the last id that leases of a session can have, by the numbers of its claims."""
    return session << 32 | since, session << 32 | up_to
