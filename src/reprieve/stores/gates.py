"""How the gate of a dependency is stored: an entry of the store, and the permits that the claim honours.

The fleet's gate is the one in the entry; no entry is a gate that is open and healthy. An entry and its limit update
are written together, by compare-and-set.
"""

import logging
from typing import Final, NamedTuple

import msgspec

from reprieve.core.audit import Author
from reprieve.core.gate import Gate
from reprieve.stores.limit_notices import gate_notices
from reprieve.stores.protocol import Entry, EntryWrite, LimitUpdate, Store

log = logging.getLogger("reprieve")

GATE_PREFIX: Final = "gate:"
"""The prefix of the keys of gates."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Gate).decode


class StoredGate(NamedTuple):
    """A gate as the store has it."""

    gate: Gate
    version: int
    """The version of its entry; 0 where there is none. Versions only grow, also when an entry is deleted and made
    again."""


class GateChanges(NamedTuple):
    """The gates that changed since a cursor, by their dependencies."""

    gates: dict[str, StoredGate]
    deleted: dict[str, int]
    """Gates whose entries were deleted; versions of later entries are larger than these numbers."""
    version: int
    """No gate had a larger version when the read began."""
    cursor: str
    is_whole: bool
    """Whether these are all gates that have an entry; versions may be smaller than before."""


def open_gate(dependency: str) -> StoredGate:
    """Return the gate of a dependency that the store has no entry for."""
    return StoredGate(Gate(dependency=dependency), 0)


async def read_gate(store: Store, dependency: str) -> StoredGate:
    """Return the gate of one dependency."""
    entry = await store.entry(GATE_PREFIX + dependency)
    return open_gate(dependency) if entry is None else _stored(entry)


async def read_gates(store: Store, cursor: str = "") -> GateChanges:
    """Return the gates that changed since a cursor; an empty cursor reads every gate that has an entry."""
    changes = await store.entries_since(cursor, GATE_PREFIX)
    return GateChanges(
        {entry.key.removeprefix(GATE_PREFIX): _stored(entry) for entry in changes.entries},
        {deletion.key.removeprefix(GATE_PREFIX): deletion.version for deletion in changes.deleted},
        changes.version,
        changes.cursor,
        is_whole=changes.is_whole,
    )


async def write_gate(store: Store, before: StoredGate, after: Gate | None, now: int, author: Author) -> int | None:
    """Replace a gate, and with it what the claim honours. None deletes the entry: the gate is open.

    Returns the new version, 0 of an entry that is gone. Returns None, and writes nothing, if the gate has changed since
    it was read.
    """
    dependency = before.gate.dependency
    value = None if after is None else _encode(after)
    gate = after or Gate(dependency=dependency)
    write = EntryWrite(
        key=GATE_PREFIX + dependency,
        version=before.version,
        value=value,
        updates=_limit_updates(before.gate, gate),
        notices=gate_notices(before.gate, gate, now, author),
    )
    written = (await store.compare_and_set(write, now, author)).entry
    return None if written is None else written.version


def _stored(entry: Entry) -> StoredGate:
    """Return the gate of an entry. One that cannot be read may be held, so it is probed at once, and written anew."""
    try:
        gate = _decode(entry.value)
    except msgspec.MsgspecError as error:
        dependency = entry.key.removeprefix(GATE_PREFIX)
        log.warning("the gate of %s cannot be read and begins with a probe (%s)", dependency, error)
        gate = Gate(dependency=dependency, mode="held", probe_at=0)
    return StoredGate(gate, entry.version)


def _limit_updates(before: Gate, after: Gate) -> tuple[LimitUpdate, ...]:
    """Return what the claim must honour from now on, if that has changed."""
    permits = after.permits(0)
    if permits == before.permits(0):
        return ()
    # A gate that is open leaves the dependency to its default.
    update = LimitUpdate(subject="dependency", name=after.dependency, permits="default" if permits is None else permits)
    return (update,)
