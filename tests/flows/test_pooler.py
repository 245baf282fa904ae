"""A pooler of transactions between the workers and the server: everything works, and only news travel slower."""

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.flows.fleet import ONCE, Stage, calls, play
from tests.flows.ground import Ground, Schema
from tests.flows.workload import fail_once, nap


class Pooled(Schema):
    """A schema that is reached through a pooler."""

    def __init__(self, server: str, pooler: str, *, listens: bool) -> None:
        super().__init__(server)
        self.url = f"{pooler}?schema={self.name}"
        if listens:
            self.url += f"&listen={quote(server, safe='')}"


@pytest.mark.parametrize("listens", [False, True], ids=["deaf", "listening"])
async def test_workers_behind_a_pooler_run_every_job_once(
    tmp_path: Path, postgres_url: str, pgbouncer_url: str, *, listens: bool
) -> None:
    @contextmanager
    def grounds(_: Path) -> Generator[Ground]:
        schema = Pooled(postgres_url, pgbouncer_url, listens=listens)
        try:
            yield schema
        finally:
            schema.drop()

    async def scene(stage: Stage) -> None:
        stage.hire(processes=2, slots=4)
        first = await stage.enqueue(*calls(nap, 40))
        retried = await stage.enqueue(*calls(fail_once, 5, 0.1))
        after = await stage.succeeded(*first, *retried)
        assert len(after) == 45
        assert Counter(line.job for line in stage.began()) == Counter([*first, *retried, *retried])

    await play(scene, tmp_path, ONCE, grounds)
