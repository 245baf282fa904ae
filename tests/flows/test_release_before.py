"""A worker of the release before works beside one of this release, or is refused with one line."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flows.fleet import ROOT, Stage, Terms, calls, play
from tests.flows.ground import Grounds
from tests.flows.workload import fail_once, nap, stay
from tests.golden import archive
from tests.golden.places import archives
from tests.stores.newer_release import Kind, kind_of

TERMS = Terms(lease=2.0, heartbeat=0.5, times=1)


@pytest.fixture(scope="session")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the release before this one; of this very code, as long as there is none."""
    folder = tmp_path_factory.mktemp("release")
    kept = archives()
    return archive.unpack(kept[-1] if kept else archive.pack(folder), folder / "unpacked")


def environ_of(before: Path) -> dict[str, str]:
    """Return the environment in which the release before is imported, with the dependencies of these tests."""
    return {"PYTHONPATH": os.pathsep.join((str(before), str(ROOT))), "PYTHONDONTWRITEBYTECODE": "1"}


def run(before: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the release before."""
    return subprocess.run(
        [sys.executable, "-m", "reprieve", *arguments],
        cwd=before,
        env=os.environ | environ_of(before),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_the_release_before_is_what_runs(before: Path) -> None:
    where = "import reprieve, json, sys; print(json.dumps([reprieve.__file__, reprieve.__version__]))"
    done = subprocess.run(
        [sys.executable, "-c", where],
        cwd=before,
        env=os.environ | environ_of(before),
        capture_output=True,
        text=True,
        check=True,
    )
    path, _ = json.loads(done.stdout)
    assert Path(path).is_relative_to(before)


async def test_workers_of_both_releases_share_the_jobs_of_a_store(
    before: Path, grounds: Grounds, tmp_path: Path
) -> None:
    async def scene(stage: Stage) -> None:
        old = stage.hire(environ=environ_of(before))
        new = stage.hire()
        await stage.until(lambda: old.children() and new.children(), "both workers are up")
        # As many as both have slots: each has some of them.
        held = await stage.enqueue(*calls(stay, 8, stage.mark("end")))
        assert {line.parent for line in await stage.running(*held)} == {old.pid, new.pid}
        failing = await stage.enqueue(*calls(fail_once, 6, 0.1), *calls(nap, 20))
        stage.release("end")
        await stage.succeeded(*held, *failing)
        dead = await stage.enqueue_one(fail_once.call())
        await stage.ended(dead)
        await stage.app.job(dead).aretry(by="ana", reason="the provider is back")
        await stage.succeeded(dead)

    await play(scene, tmp_path, TERMS, grounds)


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kind]:
    """Return an empty store of each kind."""
    with kind_of(request, tmp_path) as found:
        yield found


def test_a_store_that_needs_a_newer_release_refuses_a_worker_with_one_line(before: Path, kind: Kind) -> None:
    assert run(before, "migrate", "up", kind.url).returncode == 0
    kind.migrate(excluding=True)
    stored = kind.content()
    done = run(before, "worker", "tests.flows.workload:app", "--store", kind.url)
    assert done.returncode == 1
    said = [line for line in done.stderr.splitlines() if "migrated by" in line]
    assert len(said) == 1, done.stderr
    assert "migrated by Reprieve 9.9, which releases from 9.8 on can use" in said[0]
    assert "upgrade Reprieve here" in said[0]
    assert "Traceback" not in done.stderr
    assert kind.content() == stored


def test_a_store_that_a_newer_release_migrated_is_used_by_the_release_before(before: Path, kind: Kind) -> None:
    assert run(before, "migrate", "up", kind.url).returncode == 0
    kind.migrate(excluding=False)
    assert "Reprieve 9.9" in run(before, "migrate", "status", kind.url).stdout
    assert "nothing to do" in run(before, "migrate", "up", kind.url).stdout
