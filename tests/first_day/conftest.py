"""The wheel, built and installed once, and a user with an empty folder for every test."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.first_day.user import User
from tests.servers import smtp
from tests.servers.postgres import drop_schema
from tests.servers.smtp import MailServer

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel and install it into a folder; its dependencies come from the environment of the tests."""
    folder = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder / "dist")]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = (folder / "dist").iterdir()
    installed = folder / "lib"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(installed)]
    subprocess.run([*install, str(wheel)], check=True)
    return installed


@pytest.fixture
def user(tmp_path: Path, site: Path) -> User:
    """Return a user with an empty folder."""
    folder = tmp_path / "project"
    folder.mkdir()
    return User(folder, site)


@pytest.fixture
def mail_server() -> Iterator[MailServer]:
    """Run a mail server."""
    with smtp.running() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def url(request: pytest.FixtureRequest, user: User) -> Iterator[str]:
    """Return the URL of an empty store, one of each kind."""
    name = f"user{uuid4().hex[:12]}"
    match request.param:
        case "postgres":
            server = request.getfixturevalue("postgres_url")
            yield f"{server}?schema={name}"
            drop_schema(server, name)
        case "redis":
            yield f"{request.getfixturevalue('redis_url')}?prefix={name}"
        case _:
            yield f"sqlite:///{user.folder / 'jobs.db'}"
