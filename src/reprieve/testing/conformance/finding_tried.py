# ruff: noqa: D103 - a check's name is its sentence
"""Checks of the index of tried jobs that are due later: jobs leave it when they are cancelled, or their time comes."""

from reprieve.core import change
from reprieve.core.job import Cause
from reprieve.stores.protocol import Filter, Store
from reprieve.testing.conformance.expect import expect_equal
from reprieve.testing.conformance.stage import HOUR, OPERATOR, SECOND, START, Worker, enqueue, fail, new_jobs

CAUSES = tuple(
    Cause(reason="busy", code=code, kind="transient", fingerprint=f"f{code}") for code in ("450", "451", "452")
)


async def check_retries_are_found_by_their_last_failure_until_they_end_or_begin(store: Store) -> None:
    worker = await Worker.open(store)
    await enqueue(store, *new_jobs(store, 3, tenant="a", dependency="ses"))
    at = START + SECOND
    first, second, third = sorted(await worker.take(3, at), key=lambda job: job.id)
    ends = zip((first, second, third), (START + HOUR, START + HOUR, at + SECOND), CAUSES, strict=True)
    await worker.settle(*(fail(job, at, due_at, cause) for job, due_at, cause in ends), at=at)
    expect_equal(await _found(store, at), {"450": {first.id}, "451": {second.id}, "452": {third.id}}, "retries by code")
    waiting = (await store.find(Filter(ids=(first.id,)), at)).jobs[0]
    await store.apply([change.cancel(waiting, OPERATOR, at)], at)
    (again,) = await worker.take(3, at + SECOND)
    expect_equal(again.id, third.id, "the job that is due")
    wanted: dict[str, set[str]] = {"450": set(), "451": {second.id}, "452": set()}
    expect_equal(await _found(store, at + SECOND), wanted, "retries by code after a cancel and a claim")
    await worker.settle(fail(again, at + SECOND, START + HOUR, CAUSES[1]), at=at + SECOND)
    wanted["451"].add(third.id)
    expect_equal(await _found(store, at + SECOND), wanted, "retries by code after a failure of another one")


async def _found(store: Store, now: int) -> dict[str, set[str]]:
    """Return the retries of each code, which are also found by their fingerprint and tenant."""
    found: dict[str, set[str]] = {}
    retrying = Filter(statuses=frozenset({"retrying"}), tenants=("a",))
    of_tenant = {job.id: job for job in (await store.find(retrying, now)).jobs}
    for cause in CAUSES:
        ids = [
            {job.id for job in (await store.find(wanted, now)).jobs}
            for wanted in (
                Filter(statuses=frozenset({"retrying"}), codes=(cause.code,)),
                Filter(statuses=frozenset({"retrying"}), fingerprints=(cause.fingerprint,)),
            )
        ]
        ids.append({job.id for job in of_tenant.values() if job.cause == cause})
        expect_equal(ids, ids[:1] * 3, f"retries by code, by fingerprint and by tenant of {cause.code}")
        found[cause.code] = ids[0]
    return found
