"""The stored form of gates: what the fleet agrees on, and what the claim honours."""

from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from reprieve.core.gate import Gate
from reprieve.core.job import Job
from reprieve.stores.gates import open_gate, read_gate, read_gates, write_gate
from reprieve.stores.open import open_store
from reprieve.stores.paginate import all_limit_states
from reprieve.stores.protocol import Claim, Heartbeat, Store
from reprieve.testing import FakeClock
from reprieve.testing.conformance.stage import PROGRAM, set_entry
from reprieve.worker.gates import Gates

NOW = 1_700_000_000_000
HELD = Gate(dependency="ses", mode="held", since_at=NOW, probe_at=NOW + 60_000, failed_jobs=("a", "b"))


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    store = open_store("sqlite://:memory:")
    yield store
    await store.close()


async def claimed(store: Store, number: int) -> int:
    claim = Claim(session="one", number=number, now=NOW, queues=("default",), limit=1)
    return len((await store.claim(claim)).jobs)


async def test_a_gate_without_an_entry_is_open(store: Store) -> None:
    assert await read_gate(store, "ses") == open_gate("ses")
    assert (await read_gates(store)).gates == {}


async def test_a_gate_is_read_as_it_was_written(store: Store) -> None:
    version = await write_gate(store, open_gate("ses"), HELD, NOW, PROGRAM)
    assert version
    assert await read_gate(store, "ses") == (HELD, version)
    assert (await read_gates(store)).gates == {"ses": (HELD, version)}


async def test_a_name_that_begins_like_another_is_another_gate(store: Store) -> None:
    await write_gate(store, open_gate("ses-eu"), Gate(dependency="ses-eu", mode="held"), NOW, PROGRAM)
    assert await read_gate(store, "ses") == open_gate("ses")


async def test_a_gate_that_has_changed_is_not_overwritten(store: Store) -> None:
    await write_gate(store, open_gate("ses"), HELD, NOW, PROGRAM)
    assert await write_gate(store, open_gate("ses"), Gate(dependency="ses", oks=1), NOW, PROGRAM) is None
    assert (await read_gate(store, "ses")).gate == HELD


async def test_the_claim_honours_a_held_gate_until_its_entry_is_deleted(store: Store) -> None:
    await store.heartbeat(Heartbeat(session="one", now=NOW, lease=600.0, slots=1, is_new=True))
    job = Job(id=store.new_id(NOW, "default"), task="send", dependency="ses", created_at=NOW, due_at=NOW)
    await store.enqueue([job], NOW)
    await write_gate(store, open_gate("ses"), HELD, NOW, PROGRAM)
    assert await claimed(store, 1) == 0
    assert await write_gate(store, await read_gate(store, "ses"), None, NOW, PROGRAM) == 0
    assert (await read_gates(store)).gates == {}
    assert await claimed(store, 2) == 1


async def test_a_gate_that_cannot_be_read_is_probed_and_stops_no_other(store: Store) -> None:
    version = await write_gate(store, open_gate("ses"), HELD, NOW, PROGRAM)
    assert version
    await set_entry(store, "gate:ses", version, b'{"dependency": 7}')
    await write_gate(store, open_gate("smtp"), replace(HELD, dependency="smtp"), NOW, PROGRAM)
    gates = Gates(store, FakeClock(NOW), lambda _: 0)
    await gates.refresh()
    assert gates.is_held("smtp")
    await gates.share_all()
    probing = await read_gate(store, "ses")
    assert (probing.gate.mode, probing.gate.ramp) == ("probing", 1)
    permits = {state.name: state.permits for state in await all_limit_states(store, "dependency")}
    assert permits == {"ses": 1, "smtp": 0}
