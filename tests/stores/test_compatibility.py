"""A newer release migrates a store: older ones keep working, or are refused with a line before they touch anything."""

import re
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from reprieve.core import change
from reprieve.errors import NewerSchema, SessionDead
from reprieve.stores.open import diagnostics_for, open_store
from reprieve.stores.protocol import Annotation, Filter, LimitUpdate, Retention
from reprieve.stores.redis.scripts import source
from reprieve.stores.redis.topology import SCHEMA_VERSION
from reprieve.testing.conformance.stage import (
    CANCEL_REQUEST,
    DAY,
    OPERATOR,
    PROGRAM,
    START,
    Worker,
    enqueue,
    new_job,
    new_jobs,
    set_entry,
    succeed,
)
from reprieve.version import __version__
from tests.stores.newer_release import Kind, kind_of

REFUSED = (
    "this store was migrated by Reprieve 9.9, which releases from 9.8 on can use, "
    f"and this is {__version__}; upgrade Reprieve here"
)


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kind]:
    """Return an empty store of each kind."""
    with kind_of(request, tmp_path) as found:
        yield found


def test_scripts_and_python_know_the_same_schema_version_of_redis() -> None:
    (number,) = re.findall(r"^local SCHEMA_VERSION = (\d+)", source("calls").text, re.MULTILINE)
    assert int(number) == SCHEMA_VERSION


async def test_a_release_that_a_migration_allows_keeps_working(kind: Kind) -> None:
    store = open_store(kind.url)
    worker = await Worker.open(store)
    await enqueue(store, *new_jobs(store, 3))
    leased = await worker.one()
    kind.migrate(excluding=False)
    await worker.settle(succeed(leased))
    await enqueue(store, new_job(store))
    await store.close()

    again = open_store(kind.url)
    other = await Worker.open(again, "worker-2")
    await other.settle(*map(succeed, await other.exactly(3)))
    assert (await again.tally("status", Filter(), START)).counts == {"succeeded": 4}
    await again.close()


def test_a_store_of_a_newer_release_that_this_one_can_use_needs_nothing(kind: Kind) -> None:
    diagnostics = diagnostics_for(kind.url)
    diagnostics.migrate()
    kind.migrate(excluding=False)
    found = diagnostics.migrate()
    assert (found.stored, found.known, found.is_current) == (2, 1, True)
    assert found.compatibility is not None
    assert (found.compatibility.migrated_by, found.compatibility.oldest_release) == ("9.9", "0.1.0")
    (schema,) = [finding for finding in diagnostics.examine(START) if finding.name == "schema"]
    assert schema.level == "ok"
    assert schema.seen == "version 2, of Reprieve 9.9; releases from 0.1.0 on can use it, this one too"


async def test_a_release_that_a_migration_excludes_is_refused_when_it_opens_the_store(kind: Kind) -> None:
    store = open_store(kind.url)
    await enqueue(store, *new_jobs(store, 3))
    await store.close()
    kind.migrate(excluding=True)
    before = kind.content()
    with pytest.raises(NewerSchema, match=re.escape(REFUSED)):
        await _opened_and_read(kind.url)
    with pytest.raises(NewerSchema, match=re.escape(REFUSED)):
        diagnostics_for(kind.url).migrate()
    bad = [finding for finding in diagnostics_for(kind.url).examine(START) if finding.level == "bad"]
    assert [f"{finding.seen}; {finding.fix}" for finding in bad] == [REFUSED]
    assert kind.content() == before


async def _opened_and_read(url: str) -> None:
    store = open_store(url)
    try:
        await store.find(Filter(), START)
    finally:
        await store.close()


async def test_a_release_that_a_migration_excludes_while_it_works_writes_nothing_more(kind: Kind) -> None:
    store = open_store(kind.url)
    worker = await Worker.open(store)
    jobs = new_jobs(store, 3)
    await enqueue(store, *jobs)
    leased = await worker.one()
    waiting = next(job for job in jobs if job.id != leased.id)
    kind.migrate(excluding=True)
    before = kind.content()
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "enqueue": lambda: enqueue(store, new_job(store)),
        "claim": lambda: worker.ask(1, changes=[succeed(leased)]),
        "open a session": lambda: Worker.open(store, "worker-2"),
        "cancel": lambda: store.apply([change.cancel(waiting, OPERATOR, START)], START),
        "annotate": lambda: store.annotate([Annotation(job_id=leased.id, now=START, cancel=CANCEL_REQUEST)]),
        "limit": lambda: store.update_limits(
            [LimitUpdate(subject="queue", name="default", max_running=1)], START, PROGRAM
        ),
        "set an entry": lambda: set_entry(store, "key", 0, b"value"),
        "prune": lambda: store.prune(Retention(now=START + DAY)),
        "recover": lambda: store.recover(START + 100 * DAY),
    }
    for name, call in calls.items():
        with pytest.raises((NewerSchema, SessionDead)) as refused:
            print(name, await call())  # noqa: T201 - says which call was not refused
        assert str(refused.value) == REFUSED or name == "claim", name
    assert kind.content() == before
    await store.close()
