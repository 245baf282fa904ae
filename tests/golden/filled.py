"""A store with one of everything, and everything that can be read of it."""

from collections.abc import Sequence
from typing import Final, get_args

from reprieve.core import change
from reprieve.core.gate import Gate
from reprieve.core.job import Job
from reprieve.core.move import Return
from reprieve.stores.gates import open_gate, write_gate
from reprieve.stores.paginate import all_entries
from reprieve.stores.protocol import (
    Annotation,
    AuditFilter,
    CauseGrouping,
    CauseRequest,
    FailureGroup,
    Filter,
    LimitUpdate,
    Retention,
    SeriesRequest,
    Store,
    Subject,
    Tally,
)
from reprieve.testing.conformance.stage import (
    ANOTHER,
    CANCEL_REQUEST,
    CAUSE,
    DAY,
    HEADERS,
    HOUR,
    OPERATOR,
    PROGRAM,
    START,
    Worker,
    enqueue,
    fail,
    find_all,
    kill,
    new_job,
    new_jobs,
    park,
    succeed,
)
from tests.golden.plain import plain

NOW: Final = START + HOUR
"""When everything is read."""

LATER: Final = START + 40 * DAY
"""When every lease is over and every job is due."""

QUEUES: Final = ("default", "mail")


async def fill(store: Store) -> None:
    """Store one of everything that this release can store."""
    worker = await Worker.open(store, "golden", host="mail-3", pid=4_711, tasks=("send",), version="0.1.0")
    worker.queues = QUEUES
    for settle in (
        lambda job: succeed(job, result=b'"sent"', ttl=90.0 * 86_400),
        lambda job: fail(job, due_at=START + DAY),
        lambda job: park(job, due_at=START + DAY),
        kill,
    ):
        await enqueue(store, *(new_job(store, tenant=tenant, dependency="ses") for tenant in ("acme", "zeta")))
        await worker.settle(*(settle(job) for job in await worker.exactly(2)))
    await _act(store)
    await enqueue(
        store,
        *new_jobs(store, 3, tenant="acme", queue="mail", priority=1),
        new_job(store, headers=HEADERS, group="nightly", payload=b'{"to":"ana"}', deadline_at=START + 90 * DAY),
        new_job(store, key="welcome-7", key_ttl=90.0 * 86_400, tenant="acme"),
        new_job(store, due_at=START + 2 * DAY),
    )
    running = await worker.exactly(2)
    await store.annotate(
        [
            Annotation(job_id=running[0].id, now=START, cancel=CANCEL_REQUEST),
            Annotation(job_id=running[1].id, now=START, session="golden", progress=b'"half"'),
        ]
    )
    await _share(store)
    while not (await store.prune(Retention(now=NOW))).is_all:
        pass


async def _act(store: Store) -> None:
    """Cancel a job, and retry another, as people do."""
    cancelled, dead = new_job(store, tenant="acme"), new_job(store, task="report")
    await enqueue(store, cancelled, dead)
    await store.apply([change.cancel(cancelled, OPERATOR, START)], START)
    buried = kill(dead)
    await store.apply([buried], START)
    await store.apply([change.retry(buried.job, ANOTHER, START, 60.0)], START)


async def _share(store: Store) -> None:
    """Store what is not of one job: groups of failures, limits and a gate."""
    group = FailureGroup(
        fingerprint=CAUSE.fingerprint, template="<n> mailbox busy", traceback="…", first_seen_at=START, last_seen_at=NOW
    )
    await store.describe_failures([group])
    await store.update_limits(
        [
            LimitUpdate(subject="queue", name="default", max_running=50),
            LimitUpdate(subject="tenant", queue="mail", name="acme", max_running=7, weight=2.0),
            LimitUpdate(subject="dependency", name=None, max_running=90),
        ],
        START,
        PROGRAM,
    )
    await write_gate(store, open_gate("crm"), Gate(dependency="crm", mode="held", probe_at=NOW), START, PROGRAM)


async def everything(store: Store) -> dict[str, object]:
    """Return all that can be read, as JSON has it."""
    jobs = await find_all(store, Filter(), NOW)
    groups = [fingerprint for job in jobs if job.cause and (fingerprint := job.cause.fingerprint)]
    found = {
        "jobs": sorted(jobs, key=lambda job: job.id),
        "results": [await store.result(job.id) for job in _by_id(jobs)],
        "progress": [await store.progress(job.id) for job in _by_id(jobs)],
        "events": [event for _, event in await store.events()],
        "audit": (await store.audit_log(AuditFilter())).entries,
        "tallies": {by: (await store.tally(by, Filter(), NOW)).counts for by in get_args(Tally)},
        "causes": {by: await store.causes(CauseRequest(by=by), NOW) for by in get_args(CauseGrouping)},
        "living causes": await store.causes(CauseRequest(of="living"), NOW),
        "series": await store.series(SeriesRequest(subject="all", names=("",), since_at=START, until_at=NOW), NOW),
        "limits": {name: (await store.limit_states(name)).states for name in get_args(Subject) if name != "tenant"},
        "tenants": (await store.limit_states("tenant", "mail")).states,
        "defaults": await store.limit_defaults(),
        "entries": await all_entries(store),
        "sessions": await store.sessions(START + 1),
        "failures": await store.failure_groups(sorted(set(groups))),
    }
    return {name: plain(value) for name, value in found.items()}


def _by_id(jobs: Sequence[Job]) -> list[Job]:
    return sorted(jobs, key=lambda job: job.id)


async def drain(store: Store) -> dict[str, int]:
    """Let a worker run everything that waits or was lost; return how many jobs there are by status."""
    held = await store.recover(LATER)
    returned = [change.make(job, Return(crashed=True), LATER) for job in held]
    assert set(await store.apply(returned, LATER)) == {"applied"}
    worker = await Worker.open(store, "drainer", at=LATER)
    worker.queues = QUEUES
    while jobs := await worker.take(10, LATER):
        assert set(await worker.settle(*(succeed(job, LATER) for job in jobs), at=LATER)) == {"applied"}
    return (await store.tally("status", Filter(), LATER)).counts
