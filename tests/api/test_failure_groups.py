"""Groups of failures: each is described once, with its template and its full traceback, and never at a job's cost."""

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest
from msgspec.structs import replace

from reprieve import Fail, Reprieve
from reprieve.core.cause import cause_of, fingerprint_of
from reprieve.core.failure import Failure
from reprieve.core.verdict import Verdict
from reprieve.stores.open import open_store
from reprieve.stores.protocol import MAX_FAILURE_BYTES, FailureGroup, Heartbeat, Store
from reprieve.testing import FakeClock, Fault, FaultyStore, adrain
from reprieve.worker import failure_groups
from reprieve.worker.failure_groups import MAX_PENDING, MAX_REMEMBERED, FailureGroups, RecentFingerprints
from reprieve.worker.isolation import Processes
from reprieve.worker.worker import Worker

VERDICT = Verdict(kind="transient", code="E")


def failure(number: int, message: str = "went wrong") -> Failure:
    """Return a failure of a group of its own."""
    return Failure(message=message, code=f"code-{number}", traceback="short", full_traceback="full")


def add(groups: FailureGroups, one: Failure) -> str:
    """Add a failure as a settlement does; return its fingerprint."""
    groups.add(cause_of(one, VERDICT), one)
    return fingerprint_of(one).id


async def described(store: Store, *fingerprints: str) -> list[FailureGroup]:
    return await store.failure_groups(fingerprints)


async def test_a_failure_is_described_with_its_template_and_its_full_traceback(app: Reprieve) -> None:
    @app.task(name="parse")
    def parse(number: int) -> None:
        json.loads("{" * number)

    jobs = [await parse.aenqueue(number) for number in (1, 2)]
    await adrain(app, within="1s")
    causes = [(await job.afetch()).cause for job in jobs]
    assert causes[0] is not None
    assert causes[1] is not None
    assert causes[0].fingerprint == causes[1].fingerprint
    (group,) = await described(app.store, causes[0].fingerprint)
    assert group.template == "Expecting property name enclosed in double quotes: line <n> column <n> (char <n>)"
    assert group.type == "json.decoder.JSONDecodeError"
    assert "in JSONDecoder.raw_decode" in group.traceback
    assert group.traceback.endswith("line 1 column 2 (char 1)")
    assert "raw_decode" not in causes[0].traceback
    assert causes[0].traceback.endswith("line 1 column 2 (char 1)")


async def test_a_signal_is_described_too(app: Reprieve) -> None:
    @app.task(name="stop")
    def stop() -> None:
        message = "there is no order 7"
        raise Fail(message)

    job = await stop.aenqueue()
    await adrain(app)
    cause = (await job.afetch()).cause
    assert cause is not None
    (group,) = await described(app.store, cause.fingerprint)
    assert group.template == "there is no order <n>"
    assert "raise Fail(message)" in group.traceback


async def test_secrets_are_hidden_in_a_template(clock: FakeClock) -> None:
    store = open_store("sqlite://:memory:")
    groups = FailureGroups(store, clock)
    fingerprint = add(groups, failure(1, "password=hunter was refused"))
    await groups.write()
    assert [group.template for group in await described(store, fingerprint)] == ["password=*** was refused"]
    await store.close()


async def test_a_group_is_written_once_and_again_after_an_hour(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FaultyStore(open_store("sqlite://:memory:"))
    groups, now = FailureGroups(store, clock), 1_000.0
    monkeypatch.setattr(failure_groups, "ticks", lambda: now)
    one = failure(1)
    assert groups.is_new(one)
    for _ in range(3):
        fingerprint = add(groups, one)
        await groups.write()
        assert not groups.is_new(one)
    assert store.calls["describe_failures"] == 1
    clock.advance("1h")
    now += 3_600
    assert groups.is_new(one)
    add(groups, one)
    await groups.write()
    assert store.calls["describe_failures"] == 2
    (group,) = await described(store, fingerprint)
    assert group.last_seen_at == group.first_seen_at + 3_600_000
    await store.close()


async def test_a_group_that_could_not_be_written_is_written_with_its_next_failure(clock: FakeClock) -> None:
    fault = Fault(operation="describe_failures", number=1, when="before")
    store = FaultyStore(open_store("sqlite://:memory:"), fault)
    groups = FailureGroups(store, clock)
    fingerprint = add(groups, failure(1))
    await groups.write()
    assert await described(store, fingerprint) == []
    assert groups.is_new(failure(1))
    add(groups, failure(1))
    await groups.write()
    assert len(await described(store, fingerprint)) == 1
    await store.close()


async def test_failures_that_are_all_different_are_bounded(clock: FakeClock) -> None:
    store = open_store("sqlite://:memory:")
    groups = FailureGroups(store, clock)
    fingerprints = [add(groups, failure(number)) for number in range(2 * MAX_PENDING)]
    assert not groups.is_new(failure(-1))
    await groups.write()
    assert len(await described(store, *fingerprints)) == MAX_PENDING
    # What was left out is taken with its next failure.
    add(groups, failure(2 * MAX_PENDING - 1))
    await groups.write()
    assert len(await described(store, fingerprints[-1])) == 1
    await store.close()


async def test_a_group_waits_for_a_failure_with_a_full_traceback(clock: FakeClock) -> None:
    store = open_store("sqlite://:memory:")
    groups = FailureGroups(store, clock)
    for number in range(MAX_PENDING):
        add(groups, failure(number))
    # Its full traceback was not made, since too many groups waited; they are written before it is settled.
    one = failure(-1)
    assert not groups.is_new(one)
    await groups.write()
    fingerprint = add(groups, replace(one, full_traceback=""))
    await groups.write()
    assert await described(store, fingerprint) == []
    assert groups.is_new(one)
    add(groups, one)
    await groups.write()
    assert [group.traceback for group in await described(store, fingerprint)] == ["full"]
    await store.close()


async def test_a_failure_that_has_no_traceback_at_all_is_described(clock: FakeClock) -> None:
    store = open_store("sqlite://:memory:")
    groups = FailureGroups(store, clock)
    fingerprint = add(groups, Failure(message="no result", code="result"))
    await groups.write()
    assert [group.traceback for group in await described(store, fingerprint)] == [""]
    await store.close()


class Exit(SystemExit):
    """An exit from inside of a library."""


async def wait() -> None:
    await asyncio.sleep(3_600)


async def leave() -> None:
    json.loads("1", object_hook=None, parse_int=_exit)


def _exit(_: str) -> int:
    raise Exit


@pytest.mark.parametrize(("task", "where"), [(wait, "in sleep"), (leave, "in JSONDecoder.raw_decode")])
async def test_attempts_that_end_by_a_timeout_or_an_exit_are_described_with_a_full_traceback(
    app: Reprieve, task: Callable[[], Awaitable[None]], where: str
) -> None:
    job = await app.task(name="ended", timeout="50ms")(task).aenqueue()
    await adrain(app, within="1s")
    cause = (await job.afetch()).cause
    assert cause is not None
    assert where not in cause.traceback
    (group,) = await described(app.store, cause.fingerprint)
    assert where in group.traceback


async def test_a_traceback_without_bounds_is_cut_from_the_front(clock: FakeClock) -> None:
    store = open_store("sqlite://:memory:")
    groups = FailureGroups(store, clock)
    fingerprint = add(groups, replace(failure(1), full_traceback="größe\n" * 10_000 + "the end"))
    await groups.write()
    (group,) = await described(store, fingerprint)
    assert len(group.traceback.encode()) <= MAX_FAILURE_BYTES
    assert group.traceback.startswith("…\ngröße\n")
    assert group.traceback.endswith("the end")
    await store.close()


def test_a_process_remembers_a_bounded_number_of_groups() -> None:
    recent = RecentFingerprints()
    recent.add("first")
    assert recent.has("first")
    for number in range(MAX_REMEMBERED):
        recent.add(str(number))
    assert recent.has(str(MAX_REMEMBERED - 1))
    assert not recent.has("first")


async def test_a_store_that_cannot_describe_failures_costs_no_job(clock: FakeClock) -> None:
    class Undescribing(FaultyStore):
        async def describe_failures(self, groups: object) -> None:
            is_asked.set()
            raise RuntimeError

    app = Reprieve("sqlite://:memory:")
    is_asked, is_done = asyncio.Event(), asyncio.Event()

    @app.task(name="fail")
    async def fail() -> None:
        message = "no"
        raise Fail(message)

    @app.task(name="succeed")
    async def succeed() -> None:
        is_done.set()

    store = Undescribing(open_store("sqlite://:memory:"))
    with app.override(store=store):
        dead = await fail.aenqueue()
        heartbeat = Heartbeat(session="worker", now=app.clock.now(), lease=600, slots=5, is_new=True)
        await store.heartbeat(heartbeat)
        worker = Worker(app, "worker", slots=5, isolation=Processes())
        working = asyncio.create_task(worker.run())
        async with asyncio.timeout(60):
            await is_asked.wait()
            await succeed.aenqueue()
            await is_done.wait()
            worker.stop()
            await working
        assert (await dead.afetch()).state == "dead"
