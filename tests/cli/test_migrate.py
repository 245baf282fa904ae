"""`reprieve migrate`: what layout a store has, and how it gets the newest; never a traceback."""

import sqlite3
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from reprieve.stores.postgres.functions import with_hashed_names
from tests.cli import files
from tests.cli.shell import answer, complaint, reprieve
from tests.servers.postgres import drop_schema


def test_a_store_that_does_not_exist_has_no_layout_and_is_not_made(tmp_path: Path) -> None:
    assert "none yet" in reprieve("migrate", "status", "sqlite:///jobs.db").stdout
    told = answer("migrate", "status", "sqlite:///jobs.db")
    version = {"stored": 0, "known": 1, "compatibility": None, "missingFunctions": 0}
    assert told == {"url": "sqlite:///jobs.db", "schemaVersion": version, "isCurrent": False}
    assert list(tmp_path.iterdir()) == []


def test_up_makes_the_store_and_a_second_time_does_nothing() -> None:
    assert answer("migrate", "up", "sqlite:///jobs.db") == {"url": "sqlite:///jobs.db", "before": 0, "after": 1}
    assert "nothing to do" in reprieve("migrate", "up", "sqlite:///jobs.db").stdout
    assert answer("migrate", "status", "sqlite:///jobs.db")["isCurrent"] is True


def test_up_says_what_it_did() -> None:
    assert reprieve("migrate", "up").stdout == "sqlite:///reprieve.db has schema version 1 now (before: none)\n"


def test_the_store_is_the_argument_then_the_environment_then_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def target(*arguments: str) -> object:
        return answer("migrate", "status", *arguments)["url"]

    assert target() == "sqlite:///reprieve.db"
    (tmp_path / "reprieve.toml").write_text('url = "sqlite:///file.db"', "utf-8")
    assert target() == "sqlite:///file.db"
    monkeypatch.setenv("REPRIEVE_URL", "sqlite:///environment.db")
    assert target() == "sqlite:///environment.db"
    assert target("sqlite:///argument.db") == "sqlite:///argument.db"


def test_the_sql_run_by_hand_makes_the_newest_layout(tmp_path: Path) -> None:
    script = reprieve("migrate", "sql").stdout
    assert script.startswith("-- 0001.sql\n")
    with closing(sqlite3.connect(tmp_path / "hand.db")) as connection:
        connection.executescript(script)
    assert answer("migrate", "status", "sqlite:///hand.db")["isCurrent"] is True
    assert [step["name"] for step in answer("migrate", "sql")] == ["0001.sql"]


def test_memory_has_what_its_process_knows() -> None:
    assert answer("migrate", "status", "sqlite://:memory:")["isCurrent"] is True


@pytest.mark.parametrize("command", ["status", "up"])
def test_bad_files_are_refused_with_a_line_and_left_alone(command: str, tmp_path: Path) -> None:
    cases = [
        (files.foreign(tmp_path / "foreign.db"), "is a database of another program"),
        (files.no_database(tmp_path / "none.db"), "not a SQLite database"),
        (files.newer(tmp_path / "newer.db"), "migrated by Reprieve 9.9, which releases from 9.8 on can use"),
        (files.speechless(tmp_path / "speechless.db"), "has no schema version"),
    ]
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for path, words in cases:
        assert words in complaint("migrate", command, f"sqlite:///{path.name}", status=1)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_database_of_an_application_is_shared_when_it_is_said_to_be(tmp_path: Path) -> None:
    files.foreign(tmp_path / "app.db")
    assert answer("migrate", "status", "sqlite:///app.db", "--shared")["schemaVersion"]["stored"] == 0
    assert answer("migrate", "up", "sqlite:///app.db", "--shared")["after"] == 1
    assert answer("migrate", "status", "sqlite:///app.db")["isCurrent"] is True


@pytest.mark.parametrize("command", [["migrate", "status"], ["migrate", "up"], ["doctor"]], ids=" ".join)
def test_the_settings_may_say_that_a_database_is_shared(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.foreign(tmp_path / "app.db")
    reprieve(*command, "sqlite:///app.db", status=1)
    monkeypatch.setenv("REPRIEVE_SHARED", "true")
    reprieve(*command, "sqlite:///app.db")


@pytest.mark.parametrize("command", ["status", "up"])
def test_places_that_are_no_file_are_refused(command: str, tmp_path: Path) -> None:
    (tmp_path / "folder.db").mkdir()
    assert "is not a file" in complaint("migrate", command, "sqlite:///folder.db", status=1)


def test_a_missing_folder_is_reported() -> None:
    assert "does not exist" in complaint("migrate", "up", "sqlite:///missing/jobs.db", status=1)


@pytest.mark.parametrize("command", [["migrate", "status"], ["migrate", "up"], ["migrate", "sql"]], ids=" ".join)
def test_a_url_that_names_no_store_is_wrong_usage(command: list[str]) -> None:
    assert "write sqlite:///jobs.db" in complaint(*command, "jobs.db", status=2)
    assert "hunter2" not in complaint(*command, "mysql://me:hunter2@db/jobs", status=2)


def test_status_and_up_say_which_functions_were_missing(postgres_url: str) -> None:
    url = f"{postgres_url}?schema=status_{uuid4().hex[:12]}"
    server, _, schema = url.partition("?schema=")
    try:
        reprieve("migrate", "up", url)
        with psycopg.connect(server, autocommit=True) as admin:
            admin.execute(f"drop function {schema}.{with_hashed_names('take_jobs()').removesuffix('()')}")
        shown = reprieve("migrate", "status", url).stdout
        assert "1 of this release's functions" in shown
        assert "reprieve migrate up" in shown
        assert "were created" in reprieve("migrate", "up", url).stdout
        assert answer("migrate", "status", url)["isCurrent"] is True
    finally:
        drop_schema(server, schema)
