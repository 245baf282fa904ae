"""Changes that hold anything at all: each is stored as it is, or refused by itself."""

import math
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from reprieve.core.change import Change
from reprieve.core.job import Cause, Job
from reprieve.stores.postgres import PostgresStore
from reprieve.stores.protocol import Filter
from reprieve.testing.conformance.stage import START, Worker, find_all, kill, new_jobs, succeed

AN_ID = "018bcfe5-6800-7000-8000-000000000001"


def killed(job: Job, code: str, fingerprint: str) -> Change:
    return kill(job, cause=Cause(reason="it failed", code=code, kind="permanent", fingerprint=fingerprint))


@pytest.mark.parametrize("other", ["x,y", "null", "{}", '"', "\\", "it's", "", " "])
async def test_columns_are_not_read_by_the_first_text_in_them(store: PostgresStore, other: str) -> None:
    worker = await Worker.open(store)
    await store.enqueue(new_jobs(store, 2), START)
    first, second = await worker.exactly(2)
    answers = await worker.settle(killed(first, AN_ID, other), killed(second, other, AN_ID))
    assert answers == ["applied", "applied"]
    found = {job.id: job.cause.code for job in await find_all(store, Filter()) if job.cause}
    assert found == {first.id: AN_ID, second.id: other}
    assert [job.id for job in await find_all(store, Filter(statuses=frozenset({"dead"}), codes=(AN_ID,)))] == [first.id]


def of_another_tenant(job: Job, tenant: str) -> Change:
    change = kill(job)
    return replace(change, job=replace(change.job, tenant=tenant))


UNSTORABLE: dict[str, Callable[[Job], Change]] = {
    "code": lambda job: killed(job, "a\0b", "f"),
    "fingerprint": lambda job: killed(job, "450", "a\0b"),
    "surrogate": lambda job: killed(job, "\ud800", "f"),
    "name": lambda job: of_another_tenant(job, "a\0b"),
    "endless": lambda job: succeed(job, result=b"answer", ttl=math.inf),
    "too long": lambda job: succeed(job, result=b"answer", ttl=1e300),
}


@pytest.mark.parametrize("what", UNSTORABLE)
async def test_change_that_cannot_be_written_is_refused_by_itself(store: PostgresStore, what: str) -> None:
    worker = await Worker.open(store)
    await store.enqueue(new_jobs(store, 3), START)
    first, bad, last = await worker.exactly(3)
    answers = await worker.settle(killed(first, "450", "f"), UNSTORABLE[what](bad), succeed(last))
    assert answers == ["applied", "refused", "applied"]
    assert await worker.settle(succeed(bad)) == ["applied"]
