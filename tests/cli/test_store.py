"""`--store` names the store, whatever the app says, and whatever it has opened while it was imported."""

import asyncio
import sys
from pathlib import Path

from reprieve import Reprieve
from reprieve.stores.protocol import Filter
from tests.cli.shell import process

APP = """
from reprieve import Reprieve

app = Reprieve("sqlite:///of-the-app.db")

@app.task
def follow_up() -> None: ...

@app.task(executor="process")
def begin() -> None:
    follow_up.enqueue()

assert app.store is not None
"""
OURS = "sqlite:///ours.db"
PATIENCE = 30.0


async def states(url: str) -> dict[str, str]:
    async with Reprieve(url) as app:
        page = await app.store.find(Filter(), app.clock.now())
    return {job.task: job.state for job in page.jobs}


async def test_a_store_that_was_opened_at_import_is_left_for_the_one_that_is_named(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(APP)
    enqueued = process("enqueue", "shop:app", "shop.begin", "--store", OURS)
    assert enqueued.returncode == 0, enqueued.stderr
    assert await states(OURS) == {"shop.begin": "waiting"}
    command = ("-m", "reprieve", "worker", "shop:app", "-p", "1", "--store", OURS)
    worker = await asyncio.create_subprocess_exec(sys.executable, *command, stderr=asyncio.subprocess.DEVNULL)
    try:
        async with asyncio.timeout(PATIENCE):
            while await states(OURS) != {"shop.begin": "succeeded", "shop.follow_up": "succeeded"}:  # noqa: ASYNC110 - another process works
                await asyncio.sleep(0.05)
    finally:
        worker.terminate()
        await worker.wait()
    assert await states("sqlite:///of-the-app.db") == {}
