"""Writers that are killed in the middle of actions: every action has one audit entry, and no entry lacks its action."""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from reprieve.core.audit import AuditEntry
from reprieve.core.events import Event
from reprieve.core.move import Cancel, ManualRetry
from reprieve.stores.open import open_store
from reprieve.stores.protocol import EventQuery, Filter, Store
from reprieve.testing.conformance.auditing import all_audit
from reprieve.testing.conformance.stage import find_all
from tests.servers import redis as servers
from tests.servers.postgres import drop_schema
from tests.stores.audited_writer import KEY

ROOT = Path(__file__).parents[2]
KILLS = 6
"""Writers that are killed, two at a time."""


def kill_writers(url: str) -> None:
    """Let two writers act at the same time, and kill each after some actions, at any point of the next one."""
    for number in range(0, KILLS, 2):
        writers = [
            subprocess.Popen(
                [sys.executable, "-m", "tests.stores.audited_writer", url, f"person-{number + other}"],
                cwd=ROOT,
                stdout=subprocess.PIPE,
            )
            for other in range(2)
        ]
        for writer in writers:
            assert writer.stdout is not None
            for _ in range(3 + number):
                assert writer.stdout.readline()
        for writer in writers:
            os.kill(writer.pid, signal.SIGKILL)
            writer.communicate()


async def check_log(store: Store) -> None:
    """Compare the audit log with what was done, as jobs, events, limits and the entry tell it."""
    log = await all_audit(store, is_newest_first=False)
    assert len({entry.position for entry in log}) == len(log)
    moves: Counter[tuple[str, str, str, str]] = Counter()
    now = store.clock.now() + 10_000
    jobs = await find_all(store, Filter(), now, 1_000)
    for job in jobs:
        page = await store.read_events(EventQuery(job_id=job.id))
        for _, event in page.events:
            move = event.move if isinstance(event, Event) else None
            if isinstance(move, Cancel | ManualRetry):
                word = "cancel" if isinstance(move, Cancel) else "retry"
                moves[job.id, word, move.by, move.reason] += 1
    told = Counter((entry.name, entry.action, entry.actor, entry.reason) for entry in log if entry.kind == "job")
    assert told == moves
    assert set(moves.values()) == {1}
    for name in {entry.name for entry in log if entry.kind == "task"}:
        check_limits([entry for entry in log if entry.kind == "task" and entry.name == name])
    entry = await store.entry(KEY)
    assert entry is not None
    assert len([one for one in log if one.kind == "entry"]) == int(entry.value)
    assert sum(job.task == "tick" for job in jobs) == int(entry.value)


def check_limits(entries: list[AuditEntry]) -> None:
    """Check that each entry of a limit begins where the one before it ended."""
    before: object = "default"
    for entry in entries:
        assert entry.before["max_running"] == before
        before = entry.after["max_running"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    with servers.cluster() as nodes:
        yield f"{nodes.url}?partitions=4"


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "redis", "cluster"])
async def test_every_action_of_a_writer_that_is_killed_has_one_audit_entry(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    name = f"audit_{uuid4().hex[:12]}"
    if kind == "sqlite":
        url = f"sqlite:///{tmp_path / 'jobs.db'}"
    elif kind == "postgres":
        url = f"{request.getfixturevalue('postgres_url')}?schema={name}"
    elif kind == "redis":
        url = f"{request.getfixturevalue('redis_url')}?prefix={name}"
    else:
        url = request.getfixturevalue("cluster")
    kill_writers(url)
    store = open_store(url)
    try:
        await check_log(store)
    finally:
        await store.close()
        if kind == "postgres":
            drop_schema(request.getfixturevalue("postgres_url"), name)
