"""Settlements that no store can write: each is a failure of its own job, and the jobs beside it go on."""

from collections.abc import AsyncIterator, Callable
from decimal import Decimal
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from reprieve import Cancel, Policy, Reprieve, Settings, Verdict, Window
from reprieve.core.backoff import Exponential, Formula
from reprieve.core.failure import Failure
from reprieve.core.job import Job
from reprieve.stores.protocol import Claim, Heartbeat
from reprieve.worker.in_flight import InFlightTable
from reprieve.worker.parts import WorkerParts
from tests.flows.ground import Grounds

SLOTS = 20


@pytest.fixture
async def app(grounds: Grounds, tmp_path: Path) -> AsyncIterator[Reprieve]:
    with grounds(tmp_path) as ground:
        async with Reprieve(ground.url, settings=Settings(largest_payload=1_000)) as app:
            await app.store.heartbeat(
                Heartbeat(session="one", now=app.clock.now(), lease=600.0, slots=SLOTS, is_new=True)
            )
            yield app


class Rules:
    """Rules of an application, which return whatever they make."""

    def __init__(self, make: Callable[[], Verdict]) -> None:
        self._make = make

    def judge(self, _: Failure) -> Verdict:
        return self._make()


class Unchecked(Verdict):
    """A verdict of an application that checks nothing."""

    def __post_init__(self) -> None:
        """Take any value."""


class Jitter:
    """A jitter of an application."""

    def spread(self, raw: float, cap: float, u: float) -> float:
        del raw, cap, u
        return "soon"  # type: ignore[return-value]  # that is the point


class HalfPast(Window):
    """A window of an application that counts halves of milliseconds."""

    def opens_at(self, at: int) -> int:
        return at + 0.5  # type: ignore[return-value]  # that is the point


POLICIES: dict[str, Policy] = {
    "a verdict with a number for a code": Policy(rules=[Rules(lambda: Verdict(kind="transient", code=503))]),  # type: ignore[arg-type]  # that is the point
    "a verdict that checks nothing": Policy(rules=[Rules(lambda: Unchecked(kind="transient", code=503))]),  # type: ignore[arg-type]  # as above
    "a code with NUL": Policy(rules=[Rules(lambda: Verdict(kind="transient", code="a\0b"))]),
    "a code with a lone surrogate": Policy(rules=[Rules(lambda: Unchecked(kind="permanent", code="a\ud800"))]),
    "a rule that returns a text": Policy(rules=[Rules(lambda: "permanent")]),  # type: ignore[arg-type,return-value]  # as above
    "a backoff of Decimals": Policy(backoff=Formula(lambda _: Decimal("1.5"))),  # type: ignore[arg-type,return-value]  # as above
    "a backoff of NaN": Policy(backoff=Formula(lambda _: float("nan"))),
    "a jitter of texts": Policy(backoff=Exponential("1s", jitter=Jitter())),
    "a window of fractions": Policy(window=HalfPast()),
}


async def run_all(app: Reprieve, count: int) -> None:
    """Fetch, run and settle jobs, all in one batch."""
    parts = WorkerParts.assemble(app, "one", in_flight=InFlightTable(SLOTS), slots=SLOTS)
    jobs: list[Job] = []
    while len(jobs) < count:
        jobs += (await parts.claims.claim(["default"], SLOTS, [])).jobs
    ended = [await parts.attempts.run(job) for job in jobs]
    await parts.claims.claim([], 0, [parts.settlement.settle(job, outcome) for job, outcome in ended])
    parts.attempts.close()


async def test_what_cannot_be_written_is_settled_as_a_failure_beside_jobs_that_go_on(app: Reprieve) -> None:
    async def send(is_good: bool) -> None:
        if not is_good:
            message = "450 busy"
            raise ConnectionError(message)

    tasks = {what: app.task(name=what, policy=policy)(send) for what, policy in POLICIES.items()}
    bad = {what: await task.aenqueue(is_good=False) for what, task in tasks.items()}
    good = [await task.aenqueue(is_good=True) for task in tasks.values()]
    await run_all(app, len(bad) + len(good))
    assert {(await handle.afetch()).state for handle in good} == {"succeeded"}
    for what, handle in bad.items():
        job = await handle.afetch()
        assert (job.state, job.waiting_for, job.charged) == ("waiting", "retry", 1), what
        assert job.cause is not None
        assert type(job.cause.code) is str
    for what in ("a verdict that checks nothing", "a code with a lone surrogate", "a window of fractions"):
        cause = (await bad[what].afetch()).cause
        assert cause is not None
        assert cause.code == "unsettled", what
        assert "cannot be stored" in cause.reason, what


async def test_a_failure_that_cannot_be_written_keeps_the_limit_of_its_job(app: Reprieve) -> None:
    @app.task(policy=Policy(max_attempts=1, rules=POLICIES["a verdict that checks nothing"].rules))
    async def send() -> None:
        raise ConnectionError

    handle = await send.aenqueue()
    with capture_logs() as logs:
        await run_all(app, 1)
    job = await handle.afetch()
    assert (job.state, job.death) == ("dead", "exhausted")
    assert "late result refused" not in [line["event"] for line in logs]


async def test_a_cancel_with_any_reason_ends_its_job(app: Reprieve) -> None:
    @app.task
    async def stop(kind: str) -> None:
        signal = Cancel({"ugly": "a\0\ud800\x1b[31mb", "long": "x" * 72_000}.get(kind, "x"))
        if kind == "number":
            signal.reason = 5  # type: ignore[assignment]  # that is the point
        raise signal

    handles = {kind: await stop.aenqueue(kind) for kind in ("ugly", "long", "number")}
    await run_all(app, 3)
    states = {kind: (await handle.afetch()).state for kind, handle in handles.items()}
    assert states == {"ugly": "cancelled", "long": "cancelled", "number": "waiting"}


async def test_a_result_that_the_store_does_not_take_is_a_failure_that_is_not_retried(app: Reprieve) -> None:
    @app.task(result_ttl="1h")
    async def report(size: int) -> str:
        return "x" * size

    # The worker was started with a higher limit than the store was opened with.
    assert app.store is not None
    small, large = await report.aenqueue(10), await report.aenqueue(5_000)
    app.settings = Settings(url=app.settings.url, largest_payload=10_000)
    await run_all(app, 2)
    assert await small.aresult() == "x" * 10
    job = await large.afetch()
    assert (job.state, job.death) == ("dead", "permanent")
    assert job.cause is not None
    assert job.cause.code == "unsettled"


async def test_people_may_write_any_reason(app: Reprieve) -> None:
    @app.task
    async def send() -> None: ...

    ugly = "a\0b\ud800 \x1b[31m" + "r" * 72_000
    running = await send.aenqueue()
    await app.store.claim(Claim(session="one", number=1, now=app.clock.now(), queues=("default",), limit=1))
    waiting = await send.aenqueue()
    assert await waiting.acancel(by="ana", reason=ugly) == "cancelled"
    assert await running.acancel(by=ugly, reason=ugly) == "stopping"
    request = (await running.afetch()).cancel_request
    assert request is not None
    assert request.by.endswith("characters)")
    assert request.reason.startswith("a b r")
    assert request.reason.endswith("characters)")
    assert (await waiting.aretry(by=ugly, reason=ugly)).job_id == waiting.id
    events = [event for _, event in await app.store.events(job_id=waiting.id)]
    assert [event.name for event in events] == ["JobCancelled", "ManualRetryRequested"]
    assert all(len(str(event.move)) < 5_000 for event in events)
