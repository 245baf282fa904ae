"""Sending: jobs wait in the outbox if their transaction commits, and reach the store only then, as they were made."""

import asyncio
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from reprieve import Reprieve
from reprieve.config import Settings
from reprieve.core.headers import Headers
from reprieve.errors import InvalidUrl, JobNotFound, PayloadTooLarge, StoreError, ValidationError
from reprieve.stores.open import open_outbox
from reprieve.stores.outbox import Contents
from reprieve.stores.paginate import all_entries
from tests.cli.shell import process
from tests.relay.shop import Shop, Undone, confirm


async def test_a_job_reaches_the_store_after_the_commit(shop: Shop) -> None:
    with shop.database.transaction() as connection:
        (handle,) = shop.send_in(connection)
    assert handle.is_new
    assert await shop.arrived() == []
    assert await shop.drain() == (1, 0)
    assert await shop.arrived() == [handle.id]
    assert await shop.drain() == (0, 0)


async def test_a_rollback_leaves_nothing_behind(shop: Shop) -> None:
    with suppress(Undone), shop.database.transaction() as connection:
        shop.send_in(connection, 3)
        raise Undone
    (kept,) = shop.send()
    assert await shop.drain() == (1, 0)
    assert await shop.arrived() == [kept]


async def test_a_job_arrives_as_it_was_made(shop: Shop) -> None:
    options: dict[str, Any] = {
        "tenant": "acme",
        "queue": "mail",
        "priority": 2,
        "group": "g",
        "max_attempts": 7,
        "deadline": "2h",
    }
    headers: dict[str, Any] = {"tags": ["nightly"], "user": "ana", "headers": {"origin": "import"}, "sla": "5m"}
    (job_id,) = shop.send(delay="1h", key="welcome", key_ttl="3h", **options, **headers)
    await shop.drain()
    job = await shop.app.job(job_id).afetch()
    sla_at = job.created_at + 300_000
    assert job.headers == Headers(tags=("nightly",), user="ana", own={"origin": "import"}, sla_at=sla_at)
    assert (job.tenant, job.queue, job.priority, job.group, job.key, job.key_ttl) == (
        *("acme", "mail", 2, "g", "welcome"),
        10_800,
    )
    assert (job.max_attempts, job.waiting_for) == (7, "schedule")
    assert 3_600_000 <= job.due_at - job.created_at < 3_601_000
    assert job.deadline_at == job.created_at + 7_200_000


async def test_a_job_with_a_key_that_is_taken_is_not_stored(shop: Shop) -> None:
    direct = shop.confirm.using(key="k")
    first = await direct.aenqueue(1)
    (second,) = shop.send(key="k")
    assert second != first.id
    assert await shop.drain() == (1, 0)
    assert await shop.arrived() == [first.id]
    assert (await direct.aenqueue(1)).id == first.id


async def test_a_job_in_the_outbox_is_said_to_be_there(shop: Shop) -> None:
    (job_id,) = shop.send()
    for call in (
        shop.app.job(job_id).afetch(),
        shop.app.job(job_id).acancel(by="ana", reason="test"),
        shop.app.job(job_id).aretry(by="ana", reason="test"),
    ):
        with pytest.raises(JobNotFound, match=rf"job {job_id} is still in the outbox: no relay has brought it"):
            await call
    await shop.drain()
    assert (await shop.app.job(job_id).afetch()).state == "waiting"


async def test_the_command_line_says_that_a_job_is_in_the_outbox(shop: Shop) -> None:
    (job_id,) = shop.send()
    settings = {"REPRIEVE_URL": shop.app.settings.url, "REPRIEVE_OUTBOX": shop.app.settings.outbox}
    # The store is made by the first use of it.
    await all_entries(shop.app.store, "gate:")
    for words in (("show", job_id), ("cancel", job_id, "--reason", "x"), ("retry", job_id, "--reason", "x")):
        done = await asyncio.to_thread(process, "jobs", *words, **settings)
        assert (done.returncode, f"job {job_id} is still in the outbox: no relay" in done.stderr) == (3, True), done


async def test_whether_a_key_is_taken_is_not_known_before_the_relay_has_come(shop: Shop) -> None:
    with shop.database.transaction() as connection:
        first = await shop.confirm.using(connection=connection, key="k").aenqueue(1)
        second = await shop.confirm.using(connection=connection, key="k").aenqueue(1)
    assert (first.is_new, second.is_new) == (None, None)
    await shop.drain()
    (arrived,) = await shop.arrived()
    (other,) = {first.id, second.id} - {arrived}
    with pytest.raises(JobNotFound, match="with a key that another job has: then that job stands for both"):
        await shop.app.job(other).afetch()


async def test_an_outbox_is_opened_before_it_is_needed_also_while_the_store_is_down(shop: Shop) -> None:
    app = shop.open_app("redis://127.0.0.1:1/0")
    await app.aopen()
    await app.aopen()
    assert await shop.outbox().look() == Contents(waiting=0)


async def test_jobs_without_a_connection_go_straight_to_the_store(shop: Shop) -> None:
    handle = await shop.confirm.aenqueue(1)
    assert await shop.arrived() == [handle.id]
    assert await shop.outbox().look() == Contents(waiting=0)


async def test_a_connection_without_a_transaction_is_refused(shop: Shop) -> None:
    with shop.database.idle() as connection, pytest.raises(StoreError, match="no open transaction"):
        shop.send_in(connection)


async def test_what_no_store_takes_is_refused_at_once(shop: Shop) -> None:
    @shop.app.task(name="note")
    def note(text: str) -> None: ...

    with pytest.raises(PayloadTooLarge), shop.database.transaction() as connection:
        shop.app.enqueue(note.using(connection=connection).call("x" * 300_000))
    assert await shop.outbox().look() == Contents(waiting=0)


def test_without_an_outbox_the_error_says_what_to_do(redis_url: str) -> None:
    app = Reprieve(redis_url, settings=Settings())
    task = app.task(print)
    with pytest.raises(ValidationError, match=r"name an outbox in your database.*run reprieve relay"):
        task.using(connection=object()).enqueue()
    app.close()


def test_a_store_that_joins_transactions_uses_no_outbox(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    with Reprieve(url, outbox=f"sqlite:///{tmp_path}/app.db", settings=Settings()) as app:
        task = app.task(print)
        app.open()
        with closing(sqlite3.connect(":memory:")) as idle, pytest.raises(StoreError, match="no open transaction"):
            task.using(connection=idle).enqueue()
    assert not (tmp_path / "app.db").exists()


async def test_an_app_whose_store_is_replaced_leaves_its_outbox_out_meanwhile(shop: Shop) -> None:
    outbox = shop.app.outbox
    with shop.app.override(url="redis://127.0.0.1:1/0") as app:
        assert app.outbox is None
    assert shop.app.outbox is outbox


@pytest.mark.parametrize("url", ["redis://localhost", "sqlite://:memory:", "mysql://x", "postgresql://h:x/y"])
def test_an_outbox_is_a_database_that_a_relay_can_see(url: str) -> None:
    with pytest.raises(InvalidUrl):
        open_outbox(url)


async def test_sending_needs_no_store_that_answers(shop: Shop) -> None:
    task = shop.open_app("redis://127.0.0.1:1/0").task(name="confirm")(confirm)
    with shop.database.transaction() as connection:
        handle = await task.using(connection=connection).aenqueue(1)
    await shop.drain()
    assert await shop.arrived() == [handle.id]
