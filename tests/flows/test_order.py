"""The order of a lane: no job keeps the others from their turn."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from reprieve.config import Settings
from reprieve.core import change
from reprieve.core.gate import Gate
from reprieve.core.job import Job
from reprieve.core.move import Return
from reprieve.core.outcome import Failed, Outcome, Succeeded, overran
from reprieve.registry import Registry
from reprieve.stores.gates import open_gate, read_gate, write_gate
from reprieve.stores.open import open_store
from reprieve.stores.protocol import MAX_PAYLOAD_BYTES, Store
from reprieve.testing import FakeClock
from reprieve.testing.conformance.stage import PROGRAM, START, Worker, fail, new_job, succeed
from reprieve.worker.failure_groups import FailureGroups
from reprieve.worker.gates import Gates
from reprieve.worker.settlement import Settlement
from tests.flows.ground import Grounds


@pytest.fixture
async def store(grounds: Grounds, tmp_path: Path) -> AsyncIterator[Store]:
    with grounds(tmp_path) as ground:
        store = open_store(ground.url)
        yield store
        await store.close()


async def test_restarts_shorter_than_a_job_let_every_job_start(store: Store) -> None:
    jobs, slots = 20, 5
    await store.enqueue([new_job(store) for _ in range(jobs)], START)
    started: set[str] = set()
    for restart in range(2 * jobs // slots):
        now = START + restart * 1_000
        worker = await Worker.open(store, f"worker-{restart}", at=now)
        leased = await worker.take(slots, now)
        started.update(job.id for job in leased)
        # The worker is stopped before any job has ended, and gives all of them back.
        await worker.settle(*[change.settle(job, Return(), now + 500) for job in leased], at=now + 500)
    assert len(started) == jobs


async def test_two_bad_jobs_at_the_head_do_not_keep_a_gate_held(store: Store) -> None:
    clock = FakeClock(START)
    bad = [new_job(store, START - age, dependency="mail") for age in (2_000, 1_000)]
    await store.enqueue([*bad, *[new_job(store, dependency="mail") for _ in range(10)]], START)
    held = Gate(dependency="mail", mode="held", since_at=START, down_at=START, probe_at=START + 1_000)
    await write_gate(store, open_gate("mail"), held, START, PROGRAM)
    gates = Gates(store, clock, lambda _: 0)
    settlement = Settlement(Registry(Settings()), gates, clock, MAX_PAYLOAD_BYTES, FailureGroups(store, clock))
    worker = await Worker.open(store)
    fates: dict[str, Outcome] = {job.id: overran(job, 1.0, START) for job in bad}
    probed: list[Job] = []
    for _ in range(10):
        await gates.refresh()
        probe_at = gates.next_probe_at()
        if probe_at is None:
            break
        clock.set(max(probe_at, clock.now() + 1))
        await gates.share_all()
        (job,) = await worker.take(1, clock.now())
        probed.append(job)
        clock.advance("100ms")
        await worker.settle(settlement.settle(job, fates.get(job.id, Succeeded())), at=clock.now())
        await gates.share_all()
    outcomes = [isinstance(fates.get(job.id), Failed) for job in probed]
    stored = await read_gate(store, "mail")
    assert not all(outcomes), f"each of {len(outcomes)} probes was one of the two bad jobs"
    assert stored.gate.mode != "held"


async def test_inflow_that_takes_every_slot_does_not_delay_retries(store: Store) -> None:
    slots, rounds, step = 10, 30, 100
    worker = await Worker.open(store)
    retries = [new_job(store) for _ in range(2 * slots)]
    await store.enqueue(retries, START)
    due = {}
    for number, job in enumerate(await worker.exactly(len(retries))):
        due[job.id] = START + 500 + 100 * number
        await worker.settle(fail(job, due_at=due[job.id]))
    started: list[tuple[int, str, int]] = []
    leased: list[Job] = []
    for number in range(rounds):
        now = START + number * step
        # Twice as many new jobs arrive as there are slots.
        await store.enqueue([new_job(store, now) for _ in range(2 * slots)], now)
        leased = list((await worker.ask(slots, now, [succeed(job, now) for job in leased])).jobs)
        started += [(number, job.id, max(job.due_at, job.created_at)) for job in leased]
    assert {job_id for _, job_id, _ in started} & due.keys(), "some retries are started while new jobs arrive"
    order = [ready_at for _, _, ready_at in started]
    assert order == sorted(order), "jobs are started in the order in which they became ready, retries among them"
