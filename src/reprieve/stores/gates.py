"""How the gate of a dependency is stored: an entry of the store, and the permits that the claim honours.

The fleet's gate is the one in the entry; no entry is a gate that is open and healthy. An entry and its limit update
are written together, by compare-and-set.
"""

import logging
from typing import Final, NamedTuple

import msgspec

from reprieve.core.gate import Gate
from reprieve.stores.protocol import Entry, LimitUpdate, Store

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


def open_gate(dependency: str) -> StoredGate:
    """Return the gate of a dependency that the store has no entry for."""
    return StoredGate(Gate(dependency=dependency), 0)


async def read_gate(store: Store, dependency: str) -> StoredGate:
    """Return the gate of one dependency."""
    key = GATE_PREFIX + dependency
    # The store returns every key that begins with this one.
    found = (entry for entry in await store.entries(key) if entry.key == key)
    return next(map(_stored, found), open_gate(dependency))


async def read_gates(store: Store) -> dict[str, StoredGate]:
    """Return every gate that has an entry, by its dependency."""
    entries = await store.entries(GATE_PREFIX)
    return {entry.key.removeprefix(GATE_PREFIX): _stored(entry) for entry in entries}


async def write_gate(store: Store, before: StoredGate, after: Gate | None, now: int) -> int | None:
    """Replace a gate, and with it what the claim honours. None deletes the entry: the gate is open.

    Returns the new version, 0 of an entry that is gone. Returns None, and writes nothing, if the gate has changed since
    it was read.
    """
    dependency = before.gate.dependency
    value = None if after is None else _encode(after)
    updates = _limit_updates(before.gate, after or Gate(dependency=dependency))
    written = await store.compare_and_set(GATE_PREFIX + dependency, before.version, value, updates, now)
    return None if written is None else 0 if value is None else written.version


def _stored(entry: Entry) -> StoredGate:
    """Return the gate of an entry. One that cannot be read may be held, so it is probed at once, and written anew."""
    try:
        gate = _decode(entry.value)
    except msgspec.MsgspecError as error:
        dependency = entry.key.removeprefix(GATE_PREFIX)
        log.warning("the gate of %s cannot be read and begins with a probe (%s)", dependency, error)
        gate = Gate(dependency=dependency, mode="held", probe_at=0)
    return StoredGate(gate, entry.version)


def _limit_updates(before: Gate, after: Gate) -> list[LimitUpdate]:
    """Return what the claim must honour from now on, if that has changed."""
    permits = after.permits(0)
    if permits == before.permits(0):
        return []
    return [LimitUpdate(subject="dependency", name=after.dependency, permits=permits)]
