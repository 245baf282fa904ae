"""The SQLite file deleted or replaced under a running worker: it says so, and goes on with the file that comes."""

import asyncio
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from reprieve.errors import StoreReplaced
from tests.flows.fleet import ONCE, PATIENCE, Stage, calls, play
from tests.flows.ground import in_a_file
from tests.flows.workload import nap, stay


def file_of(stage: Stage) -> Path:
    return Path(stage.ground.url.removeprefix("sqlite:///"))


def back_up(path: Path) -> Path:
    copy = path.with_name("backup.db")
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
    return copy


def move_over(path: Path, backup: Path) -> None:
    backup.replace(path)


def copy_over(path: Path, backup: Path) -> None:
    for end in ("-wal", "-shm"):
        path.with_name(path.name + end).unlink()
    shutil.copy(backup, path)


def delete(path: Path, _: Path) -> None:
    for end in ("", "-wal", "-shm"):
        path.with_name(path.name + end).unlink()


async def enqueue_patiently(stage: Stage, count: int) -> list[str]:
    """Enqueue jobs as a producer does that repeats what was not acknowledged."""
    ids: list[str] = []

    async def is_stored() -> bool:
        try:
            ids.append(await stage.enqueue_one(nap.call()))
        except StoreReplaced:
            return False
        return len(ids) == count

    await stage.until(is_stored, "the jobs are stored", PATIENCE)
    return ids


@pytest.mark.parametrize("restore", [move_over, copy_over])
async def test_a_worker_goes_on_with_a_file_that_was_restored(
    tmp_path: Path, restore: Callable[[Path, Path], None]
) -> None:
    async def scene(stage: Stage) -> None:
        tree = stage.hire(slots=4)
        await stage.succeeded(*await stage.enqueue(*calls(nap, 3)))
        backup = await asyncio.to_thread(back_up, file_of(stage))
        long = await stage.enqueue_one(stay.call(stage.mark("end")))
        await stage.running(long)
        await asyncio.to_thread(restore, file_of(stage), backup)
        await stage.until(lambda: tree.said("store unavailable"), "the worker has noticed it")
        assert {entry["errorCode"] for entry in tree.said("store unavailable")} == {"store_replaced"}
        await stage.succeeded(*await enqueue_patiently(stage, 20), within=2 * PATIENCE)
        assert tree.status() is None

    await play(scene, tmp_path, ONCE, in_a_file)


async def test_a_worker_waits_for_a_file_that_was_deleted_and_makes_none(tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        tree = stage.hire(slots=4)
        await stage.succeeded(*await stage.enqueue(*calls(nap, 3)))
        await asyncio.to_thread(delete, file_of(stage), tmp_path)
        await stage.until(lambda: tree.said("store unavailable"), "the worker has noticed it")
        await stage.let_pass(2.0)
        assert not file_of(stage).exists()
        other = stage.open_app()
        await other.aopen()
        await stage.succeeded(*await enqueue_patiently(stage, 5), within=2 * PATIENCE)
        assert tree.status() is None
        await other.aclose()

    await play(scene, tmp_path, ONCE, in_a_file)
