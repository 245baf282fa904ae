"""Gates: what each process observes, what the fleet agrees on, and what becomes of jobs behind a gate meanwhile."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import msgspec
import pytest

from reprieve import Reprieve
from reprieve.config import Settings
from reprieve.core.audit import Author
from reprieve.core.failure import read
from reprieve.core.gate import Gate, Mode
from reprieve.core.job import Job
from reprieve.core.outcome import Failed, Outcome, Snoozed, Succeeded
from reprieve.core.verdict import Verdict
from reprieve.errors import StoreError
from reprieve.stores.gates import GATE_PREFIX, open_gate, read_gate, write_gate
from reprieve.stores.open import open_store
from reprieve.stores.paginate import all_entries
from reprieve.stores.protocol import EntryChanges, EntryWrite, EntryWritten, Filter, Store
from reprieve.testing import FakeClock
from reprieve.testing.conformance.stage import PROGRAM, set_entry
from reprieve.testing.fault import MEMORY, Fault, FaultyStore
from reprieve.worker import gate_view, gates
from reprieve.worker.gates import Gates
from reprieve.worker.prefetch import MAX_PREFETCHED_JOBS
from reprieve.worker.supervised_loop import supervised_loops
from tests.flows.working import working

OK = Succeeded()
REFUSED = Failed(failure=read("no"), verdict=Verdict(kind="transient", scope="dependency", code="connect"))
BUSY = Failed(failure=read("slow down"), verdict=Verdict(kind="throttled", scope="dependency", retry_after=60.0))
PATIENCE = 20.0
"""Seconds after which something that should happen counts as not happening."""


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def store() -> AsyncIterator[FaultyStore]:
    store = FaultyStore(open_store(MEMORY))
    yield store
    await store.close()


class Process:
    """One process of a fleet: its gates, and the calls that it makes."""

    def __init__(self, store: Store, clock: FakeClock) -> None:
        self.gates = Gates(store, clock, lambda _: 0)
        self._clock = clock

    def observe(self, outcome: Outcome, times: int = 1, dependency: str = "ses") -> None:
        now = self._clock.now()
        for number in range(times):
            job = Job(id=f"job-{number}", task="t", dependency=dependency, created_at=now, due_at=now, leased_at=now)
            self.gates.record(job, outcome)

    def known(self) -> list[str]:
        """Return what is remembered."""
        return list(self.gates._views)  # noqa: SLF001 - what is kept must not grow, and nothing else shows it

    def mode(self, dependency: str = "ses") -> Mode:
        gate = self.gates.of(dependency)
        assert gate is not None
        return gate.mode


@asynccontextmanager
async def kept(process: Process) -> AsyncGenerator[None]:
    """Let a process share what it observes, as a worker does."""
    async with supervised_loops({"sharing gates": process.gates.run}):
        yield


async def until(store: Store, is_true: Callable[[], Awaitable[bool]]) -> None:
    """Look whenever something was written, until it is true."""
    async with asyncio.timeout(PATIENCE):
        while not await is_true():
            await store.wait((), 0.1)


async def agreed(store: Store, dependency: str = "ses") -> Gate | None:
    """Return the fleet's gate, if there is one."""
    stored = await read_gate(store, dependency)
    return stored.gate if stored.version else None


async def is_held(store: Store) -> bool:
    gate = await agreed(store)
    return gate is not None and gate.mode == "held"


async def test_probes_that_snooze_or_fail_by_themselves_open_the_gate(store: FaultyStore, clock: FakeClock) -> None:
    process = Process(store, clock)
    process.observe(BUSY)
    await process.gates.share_all()
    clock.advance(60)
    own = Failed(failure=read("550 no such user"), verdict=Verdict(kind="permanent", code="550"))
    for _ in range(64):
        process.observe(Snoozed(delay=60.0))
        process.observe(own)
        await process.gates.share_all()
    gate = await agreed(store)
    assert process.mode() == "open"
    assert gate is not None
    assert gate.mode == "open"


async def test_a_neutral_call_behind_an_open_gate_writes_nothing(store: FaultyStore, clock: FakeClock) -> None:
    process = Process(store, clock)
    process.observe(Snoozed(delay=60.0))
    assert process.known() == []
    process.observe(REFUSED)
    await process.gates.share_all()
    before = await read_gate(store, "ses")
    process.observe(Snoozed(delay=60.0))
    await process.gates.share_all()
    assert await read_gate(store, "ses") == before


# a hold that only one process knows of


async def test_a_hold_does_not_wait_for_company(
    store: FaultyStore, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gates, "SHARE_INTERVAL_SECONDS", 3_600.0)
    process = Process(store, clock)
    async with kept(process):
        process.observe(REFUSED)
        for _ in range(5):
            # It waits for company by now.
            await asyncio.sleep(0)
        process.observe(BUSY)
        await until(store.behind, lambda: is_held(store.behind))


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("operation", ["entry", "compare_and_set"])
async def test_a_hold_that_could_not_be_shared_is_shared_later(
    store: FaultyStore, clock: FakeClock, operation: str, when: str
) -> None:
    store.fault = msgspec.convert({"operation": operation, "number": 1, "when": when}, Fault)
    process = Process(store, clock)
    async with kept(process):
        process.observe(REFUSED, 30)
        await until(store.behind, lambda: is_held(store.behind))
    assert store.has_failed


async def test_a_hold_is_unconfirmed_until_the_fleet_has_been_asked(store: FaultyStore, clock: FakeClock) -> None:
    process = Process(store, clock)
    process.observe(REFUSED, 30)
    assert process.mode() == "held"
    assert (process.gates.is_unconfirmed("ses"), process.gates.is_held("ses")) == (True, False)
    await process.gates.share_all()
    assert (process.gates.is_unconfirmed("ses"), process.gates.is_held("ses")) == (False, True)


async def test_a_change_of_the_fleets_gate_is_reported(store: FaultyStore, clock: FakeClock) -> None:
    process, told = Process(store, clock), Counter[str]()
    process.gates.on_change = lambda: told.update([process.mode()])
    process.observe(REFUSED, 30)
    assert not told
    await process.gates.share_all()
    assert told == {"held": 1}


async def test_what_is_heard_while_others_are_heard_is_not_forgotten(store: FaultyStore, clock: FakeClock) -> None:
    one, other = Process(store, clock), Process(store, clock)
    one.observe(REFUSED, 20)
    other.observe(REFUSED, 20)
    await one.gates.share_all()
    await other.gates.refresh()
    # The fleet has heard of 20 failures, and this process of 20 more.
    assert other.mode() == "held"
    assert other.gates.has_unconfirmed


class Refusing(FaultyStore):
    """A store that does not take what it is given, and raises an unexpected error."""

    async def compare_and_set(self, write: EntryWrite, now: int, author: Author) -> EntryWritten:
        message = "no such thing"
        raise ValueError(message)


async def test_a_hold_that_can_never_be_shared_is_dropped(store: FaultyStore, clock: FakeClock) -> None:
    process = Process(Refusing(store), clock)
    process.observe(REFUSED, 30)
    with pytest.raises(ValueError, match="no such thing"):
        await process.gates.share_all()
    assert not process.gates.has_unconfirmed


# versions and replies


async def test_calls_count_once_when_the_reply_is_lost(store: FaultyStore, clock: FakeClock) -> None:
    store.fault = Fault(operation="compare_and_set", number=1, when="after")
    process = Process(store, clock)
    process.observe(REFUSED, 20)
    with pytest.raises(StoreError):
        await process.gates.share_all()
    process.observe(REFUSED, 3)
    await process.gates.share_all()
    gate = await agreed(store)
    assert gate is not None
    assert (gate.mode, gate.fails) == ("open", 23)


async def test_calls_count_when_only_the_reply_to_the_reading_is_lost(store: FaultyStore, clock: FakeClock) -> None:
    store.fault = Fault(operation="entry", number=1, when="after")
    process = Process(store, clock)
    process.observe(REFUSED, 20)
    with pytest.raises(StoreError):
        await process.gates.share_all()
    await process.gates.share_all()
    gate = await agreed(store)
    assert gate is not None
    assert gate.fails == 20


class Late(FaultyStore):
    """A store whose answer to one reading is kept until the reader is told."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.is_late = False
        self.has_read, self.may_answer = asyncio.Event(), asyncio.Event()

    async def entries_since(self, cursor: str = "", prefix: str = "", now: int = 0) -> EntryChanges:
        found = await super().entries_since(cursor, prefix, now)
        if self.is_late and prefix == GATE_PREFIX:
            self.has_read.set()
            await self.may_answer.wait()
        return found


async def test_what_is_read_late_does_not_replace_what_is_newer(store: FaultyStore, clock: FakeClock) -> None:
    late = Late(store)
    process = Process(late, clock)
    process.observe(REFUSED)
    await process.gates.share_all()
    late.is_late = True
    reading = asyncio.create_task(process.gates.refresh())
    await late.has_read.wait()
    process.observe(REFUSED, 30)
    await process.gates.share_all()
    assert process.gates.is_held("ses")
    late.may_answer.set()
    await reading
    assert process.gates.is_held("ses")


# one process that is broken, and others that are not


async def test_a_hold_is_decided_with_the_successes_of_others(store: FaultyStore, clock: FakeClock) -> None:
    broken, sound = Process(store, clock), Process(store, clock)
    broken.observe(REFUSED, 10)
    await broken.gates.share_all()
    await sound.gates.refresh()
    sound.observe(OK, 10)
    await sound.gates.share_all()
    broken.observe(REFUSED, 25)
    assert broken.mode() == "held"
    await broken.gates.share_all()
    # 35 failures in a row hold a gate, but there were successes in between.
    assert broken.mode() == "open"
    assert not broken.gates.has_unconfirmed


async def open_again(process: Process, clock: FakeClock) -> None:
    """Lead a held gate up the ramp."""
    clock.advance("1s")
    await process.gates.share_all()
    assert process.mode() == "probing"
    while process.mode() == "probing":
        process.observe(OK)
        await process.gates.share_all()


async def test_a_gate_that_was_held_in_error_is_not_held_again(store: FaultyStore, clock: FakeClock) -> None:
    broken, sound = Process(store, clock), Process(store, clock)
    broken.observe(REFUSED, 30)
    await broken.gates.share_all()
    assert broken.gates.is_held("ses")
    await sound.gates.refresh()
    await open_again(sound, clock)
    await broken.gates.refresh()
    # No process has seen a failure since, and still both share their successes.
    for _ in range(10):
        sound.observe(OK, 10)
        await sound.gates.share_all()
        broken.observe(REFUSED, 10)
        await broken.gates.share_all()
        assert broken.mode() == "open"


async def test_an_outage_that_is_long_over_is_forgotten(store: FaultyStore, clock: FakeClock) -> None:
    process = Process(store, clock)
    process.observe(REFUSED, 30)
    await process.gates.share_all()
    await open_again(process, clock)
    assert await agreed(store) is not None
    clock.advance(gate_view.WATCHED_AFTER_OUTAGE_SECONDS)
    await process.gates.share_all()
    assert await agreed(store) is None


# when a dependency last answered


def last_success_at(process: Process, dependency: str = "ses") -> int | None:
    gate = process.gates.of(dependency)
    assert gate is not None
    return gate.last_success_at


async def test_a_process_knows_at_once_what_succeeded_in_it(store: FaultyStore, clock: FakeClock) -> None:
    process = Process(store, clock)
    assert last_success_at(process) is None
    process.observe(OK)
    first = last_success_at(process)
    assert first == clock.now()
    clock.advance("5s")
    process.observe(REFUSED)
    assert last_success_at(process) == first
    process.observe(OK)
    assert last_success_at(process) == clock.now()


async def test_a_long_call_shows_only_that_the_dependency_responded_when_it_began(
    store: FaultyStore, clock: FakeClock
) -> None:
    process = Process(store, clock)
    began = clock.now()
    slow = Job(id="slow", task="t", dependency="ses", created_at=began, due_at=began, leased_at=began)
    clock.advance("1m")
    process.observe(OK)
    recent = last_success_at(process)
    clock.advance("1m")
    process.gates.record(slow, OK)
    assert last_success_at(process) == recent


async def test_successes_elsewhere_are_known_as_soon_as_a_failure_was_told(
    store: FaultyStore, clock: FakeClock
) -> None:
    one, other = Process(store, clock), Process(store, clock)
    one.observe(REFUSED)
    await one.gates.share_all()
    assert last_success_at(one) is None
    clock.advance("200ms")
    await other.gates.refresh()
    other.observe(OK)
    served = clock.now()
    clock.advance("100ms")
    await other.gates.share_all()
    await one.gates.refresh()
    assert last_success_at(one) == served


async def test_a_success_is_told_with_its_moment_however_late_it_is_told(store: FaultyStore, clock: FakeClock) -> None:
    one, other = Process(store, clock), Process(store, clock)
    one.observe(REFUSED, 5)
    one.observe(OK)
    served = clock.now()
    clock.advance("1m")
    await one.gates.share_all()
    await other.gates.refresh()
    assert last_success_at(one) == last_success_at(other) == served


async def test_a_entry_that_another_process_deletes_means_that_others_were_served(
    store: FaultyStore, clock: FakeClock
) -> None:
    one, other = Process(store, clock), Process(store, clock)
    one.observe(REFUSED)
    await one.gates.share_all()
    await other.gates.refresh()
    clock.advance("1s")
    other.observe(OK, 100)
    await other.gates.share_all()
    assert await agreed(store) is None
    await one.gates.refresh()
    assert last_success_at(one) == clock.now()


async def test_a_entry_that_was_forgotten_says_nothing_about_successes(store: FaultyStore, clock: FakeClock) -> None:
    one, other = Process(store, clock), Process(store, clock)
    one.observe(REFUSED)
    await one.gates.share_all()
    await other.gates.refresh()
    clock.advance(gate_view.FORGET_AFTER_SECONDS)
    await other.gates.share_all()
    await one.gates.refresh()
    assert one.known() == []
    assert last_success_at(one) is None


async def test_the_last_successes_of_many_dependencies_are_not_kept_for_ever(
    store: FaultyStore, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gates, "MAX_KNOWN_SUCCESSES", 10)
    process = Process(store, clock)
    for number in range(11):
        clock.advance("1s")
        process.observe(OK, dependency=f"host-{number}")
    await process.gates.refresh()
    assert [last_success_at(process, f"host-{number}") is not None for number in range(11)] == [False] * 6 + [True] * 5


# what is forgotten


async def test_a_gate_that_is_well_again_leaves_nothing_behind(store: FaultyStore, clock: FakeClock) -> None:
    process = Process(store, clock)
    hosts = [f"host-{number}" for number in range(50)]
    for host in hosts:
        process.observe(REFUSED, 2, host)
    await process.gates.share_all()
    assert len(await all_entries(store)) == 50
    for host in hosts:
        process.observe(OK, 100, host)
    await process.gates.share_all()
    assert await all_entries(store) == []
    assert process.known() == []


async def test_a_gate_without_calls_is_forgotten(store: FaultyStore, clock: FakeClock) -> None:
    one, other = Process(store, clock), Process(store, clock)
    one.observe(REFUSED, 2)
    await one.gates.share_all()
    await other.gates.refresh()
    clock.advance(gate_view.FORGET_AFTER_SECONDS - 1)
    await other.gates.share_all()
    assert await agreed(store) is not None
    clock.advance(1)
    await other.gates.share_all()
    assert await agreed(store) is None
    await one.gates.refresh()
    assert one.known() == other.known() == []


async def test_what_is_well_and_has_no_entry_is_not_written(store: FaultyStore, clock: FakeClock) -> None:
    one, other = Process(store, clock), Process(store, clock)
    one.observe(REFUSED)
    await one.gates.share_all()
    await other.gates.refresh()
    one.observe(OK, 100)
    other.observe(OK, 10)
    await one.gates.share_all()
    written = store.calls["compare_and_set"]
    await other.gates.share_all()
    assert store.calls["compare_and_set"] == written
    assert other.known() == []


async def test_a_gate_that_is_held_is_never_forgotten(store: FaultyStore, clock: FakeClock) -> None:
    process = Process(store, clock)
    held = Gate(dependency="ses", mode="held", since_at=clock.now())
    await write_gate(store, open_gate("ses"), held, clock.now(), PROGRAM)
    await process.gates.refresh()
    clock.advance(gate_view.FORGET_AFTER_SECONDS * 2)
    await process.gates.refresh()
    await process.gates.share_all()
    assert await agreed(store) == held
    assert process.gates.is_held("ses")


async def test_a_gate_that_another_process_forgot_is_open_here_too(store: FaultyStore, clock: FakeClock) -> None:
    process, told = Process(store, clock), Counter[str]()
    process.gates.on_change = lambda: told.update([process.mode()])
    process.observe(BUSY)
    await process.gates.share_all()
    (entry,) = await all_entries(store)
    await set_entry(store, entry.key, entry.version, None)
    await process.gates.refresh()
    assert not process.gates.is_held("ses")
    assert told == {"held": 1, "open": 1}


async def test_a_gate_that_was_forgotten_and_is_held_again_is_noticed(store: FaultyStore, clock: FakeClock) -> None:
    one, other = Process(store, clock), Process(store, clock)
    one.observe(REFUSED)
    await one.gates.share_all()
    await other.gates.refresh()
    one.observe(OK, 100)
    await one.gates.share_all()
    one.observe(BUSY)
    await one.gates.share_all()
    await other.gates.refresh()
    assert other.gates.is_held("ses")


async def test_a_reading_that_was_overtaken_brings_no_gate_back(store: FaultyStore, clock: FakeClock) -> None:
    late = Late(store)
    process = Process(late, clock)
    process.observe(REFUSED)
    await process.gates.share_all()
    late.is_late = True
    reading = asyncio.create_task(process.gates.refresh())
    await late.has_read.wait()
    process.observe(OK, 100)
    await process.gates.share_all()
    late.may_answer.set()
    await reading
    assert process.known() == []


async def test_several_gates_are_written_at_once_and_one_that_fails_stops_no_other(
    store: FaultyStore, clock: FakeClock
) -> None:
    store.fault = Fault(operation="compare_and_set", number=1, when="before")
    process = Process(store, clock)
    for number in range(20):
        process.observe(REFUSED, 2, f"host-{number}")
    with pytest.raises(StoreError):
        await process.gates.share_all()
    assert len(await all_entries(store)) == 19
    await process.gates.share_all()
    assert len(await all_entries(store)) == 20


# jobs behind a gate


async def leases(store: Store, ids: Sequence[str]) -> list[int]:
    """Return how often each job was leased."""
    found: list[int] = []
    for first in range(0, len(ids), 100):
        page = await store.find(Filter(ids=tuple(ids[first : first + 100])), 0)
        found += [job.attempt for job in page.jobs]
    return found


async def test_a_worker_hears_of_a_hold_long_before_its_next_heartbeat(store: FaultyStore) -> None:
    with (
        Reprieve(MEMORY, settings=Settings(heartbeat=600.0, lease=3_600.0)) as app,
        app.override(store=store),
    ):
        async with working(app, slots=1) as worker:
            # It has looked once, and finds nothing.
            async with asyncio.timeout(PATIENCE):
                while not store.calls["entries_since"]:
                    await store.behind.wait((), 0.01)
            held = Gate(dependency="ses", mode="held", since_at=app.clock.now())
            await write_gate(store, open_gate("ses"), held, app.clock.now(), PROGRAM)

            async def knows() -> bool:
                return worker.parts.gates.is_held("ses")

            await until(store.behind, knows)


@pytest.mark.parametrize("fault", [None, Fault(operation="compare_and_set", number=2, when="before")])
async def test_an_outage_leases_hardly_more_jobs_than_it_calls(store: FaultyStore, fault: Fault | None) -> None:
    store.fault = fault
    calls, probes = 0, asyncio.Event()
    with Reprieve(MEMORY) as app, app.override(store=store):

        @app.task(dependency="ses")
        async def call() -> None:
            nonlocal calls
            calls += 1
            gate = await agreed(store.behind)
            if gate is not None and gate.mode == "probing":
                probes.set()
            raise ConnectionRefusedError

        ids = [handle.id for handle in await app.aenqueue_many(call.call() for _ in range(400))]
        async with working(app, slots=20), asyncio.timeout(PATIENCE):
            await probes.wait()
    made = await leases(store, ids)
    assert store.has_failed == (fault is not None)
    assert sum(made) <= calls + MAX_PREFETCHED_JOBS + 20
    assert max(made) <= 3
