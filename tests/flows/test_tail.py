"""`jobs tail` on every store: failures and deaths from the stream of events, successes beside them, each once."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from tests.flows import workload
from tests.flows.fleet import PATIENCE, ROOT, Stage, calls, flow


class Tail:
    """A `jobs tail` that runs in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[dict[str, Any]] = []

    async def until(self, *ids: str) -> None:
        """Read until each of these jobs has succeeded."""
        assert self.process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            while not set(ids) <= {line["jobId"] for line in self.lines if line["move"]["type"] == "Succeed"}:
                line = await self.process.stdout.readline()
                assert line, "it ended"
                self.lines.append(json.loads(line))


@flow
async def test_successes_are_shown_once_beside_what_fails(stage: Stage) -> None:
    before = await stage.enqueue_one(workload.nap.call())
    stage.hire()
    await stage.succeeded(before)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "reprieve", "jobs", "tail", "--store", stage.ground.url, "--json"),
        stdout=asyncio.subprocess.PIPE,
        cwd=Path(ROOT),
    )
    tail = Tail(process)
    try:
        # One that the tail shows tells that it has begun.
        shown: list[str] = []
        while not any(line["jobId"] in shown for line in tail.lines):
            shown.append(await stage.enqueue_one(workload.nap.call()))
            await stage.succeeded(shown[-1])
            try:
                async with asyncio.timeout(1.5):
                    await tail.until(shown[-1])
            except TimeoutError:
                continue
        ids = await stage.enqueue(workload.fail_once.call(0.05), *calls(workload.nap, 30))
        await stage.succeeded(*ids)
        await tail.until(*ids)
    finally:
        process.kill()
        await process.communicate()
    seen = [line["jobId"] for line in tail.lines if line["move"]["type"] == "Succeed"]
    assert len(seen) == len(set(seen))
    assert set(ids) <= set(seen)
    assert before not in seen
    # One that failed first is told in the order in which it happened.
    assert [line["move"]["type"] for line in tail.lines if line["jobId"] == ids[0]] == ["Retry", "Succeed"]
