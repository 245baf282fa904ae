"""`reprieve doctor`: it finds what is wrong, says how to fix it, and changes nothing."""

import hashlib
import re
import shutil
from pathlib import Path

import pytest

from reprieve.clock import now
from reprieve.stores.protocol import Claim, Heartbeat
from reprieve.stores.sqlite import SqliteStore, diagnostics
from reprieve.testing.conformance.stage import new_job
from tests.cli import files
from tests.cli.shell import answer, process, reprieve

URL = "sqlite:///jobs.db"


def findings(url: str = URL, status: int = 0) -> dict[str, dict[str, str]]:
    """Return what the doctor found, by name; what is not ok says what to do."""
    told = answer("doctor", url, status=status)
    assert told["isHealthy"] is (status == 0)
    found = {finding["name"]: finding for finding in told["findings"]}
    assert len(found) == len(told["findings"])
    assert all(finding["fix"] for finding in found.values() if finding["level"] != "ok")
    return found


def hashes(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def test_a_sound_store_is_well_in_every_respect(tmp_path: Path) -> None:
    files.sound(tmp_path / "jobs.db")
    before = hashes(tmp_path)
    found = findings()
    assert {finding["level"] for finding in found.values()} == {"ok"}
    assert list(found) == [
        *("python", "uvloop", "psycopg", "redis", "clock", "settings", "sqlite", "folder", "file system", "disk"),
        *("file", "journal", "schema", "pages", "log", "events", "sessions", "records", "outbox"),
    ]
    assert hashes(tmp_path) == before


def test_a_store_that_does_not_exist_yet_is_no_illness(tmp_path: Path) -> None:
    found = findings()
    assert (found["file"]["level"], found["file"]["seen"]) == ("warn", f"{tmp_path / 'jobs.db'} does not exist yet")
    assert "reprieve migrate up" in found["file"]["fix"]
    assert list(tmp_path.iterdir()) == []


def test_people_get_a_line_for_each_finding_and_one_for_each_fix(tmp_path: Path) -> None:
    lines = reprieve("doctor", URL).stdout.splitlines()
    assert re.fullmatch(r"ok    python        CPython 3\.\d+\.\d+.*", lines[0])
    assert f"warn  file          {tmp_path / 'jobs.db'} does not exist yet" in lines
    assert lines[-1].strip() == "→ reprieve migrate up creates it, and so does the first worker"
    files.sound(tmp_path / "jobs.db")
    assert all(line.startswith("ok ") for line in reprieve("doctor", URL).stdout.splitlines())


def test_without_an_argument_the_settings_name_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRIEVE_URL", "sqlite:///mine.db")
    assert "the store is sqlite:///mine.db" in reprieve("doctor").stdout


def test_bad_files_are_bad_and_left_alone(tmp_path: Path) -> None:
    cases = {
        "foreign.db": "is a database of another program",
        "none.db": "the file is not a SQLite database",
        "newer.db": "migrated by Reprieve 9.9",
        "speechless.db": "has no schema version",
    }
    files.foreign(tmp_path / "foreign.db")
    files.no_database(tmp_path / "none.db")
    files.newer(tmp_path / "newer.db")
    files.speechless(tmp_path / "speechless.db")
    before = hashes(tmp_path)
    for name, words in cases.items():
        found = findings(f"sqlite:///{name}", status=1)
        assert found["store"]["level"] == "bad"
        assert words in found["store"]["seen"]
    assert hashes(tmp_path) == before


def test_damaged_pages_are_bad(tmp_path: Path) -> None:
    files.damaged(tmp_path / "jobs.db")
    found = findings(status=1)
    assert [name for name, finding in found.items() if finding["level"] == "bad"] in (["pages"], ["store"])


def test_an_old_layout_is_a_warning_with_its_fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files.sound(tmp_path / "jobs.db")
    monkeypatch.setattr(diagnostics, "migrations", lambda: ["first", "second"])
    found = findings()
    assert (found["schema"]["level"], found["schema"]["seen"]) == ("warn", "version 1, and this release knows 2")
    assert "sessions" not in found


def test_an_empty_file_has_no_layout_and_no_log_yet(tmp_path: Path) -> None:
    (tmp_path / "jobs.db").touch()
    found = findings()
    assert (found["schema"]["level"], found["schema"]["seen"]) == ("warn", "none yet")
    assert (found["journal"]["level"], found["journal"]["seen"]) == ("warn", "delete, not wal")


def test_a_missing_folder_is_bad() -> None:
    found = findings("sqlite:///missing/jobs.db", status=1)
    assert found["folder"]["level"] == "bad"
    assert found["folder"]["fix"].startswith("mkdir -p ")


def test_a_folder_in_place_of_the_file_is_bad(tmp_path: Path) -> None:
    (tmp_path / "jobs.db").mkdir()
    assert findings(status=1)["file"]["seen"] == "jobs.db is not a file"


def test_a_network_file_system_is_bad(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"1 2 0:3 / {tmp_path} rw - nfs4 server:/export rw\n")
    monkeypatch.setattr(diagnostics, "_MOUNTS", mounts)
    found = findings(status=1)
    assert (found["file system"]["level"], found["file system"]["seen"]) == ("bad", "nfs4")


@pytest.mark.parametrize(
    ("free", "level", "status"), [(99 << 20, "bad", 1), (101 << 20, "warn", 0), (2 << 30, "ok", 0)]
)
def test_little_room_on_the_disk_is_told(monkeypatch: pytest.MonkeyPatch, free: int, level: str, status: int) -> None:
    usage = shutil.disk_usage(".")._replace(free=free)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    assert findings(status=status)["disk"]["level"] == level


async def test_jobs_of_dead_sessions_are_counted(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "jobs.db")
    moment = now()
    await store.enqueue([new_job(store) for _ in range(5)], moment)
    for name, lease in (("alive", 3_600.0), ("dead", 0.001)):
        await store.heartbeat(Heartbeat(session=name, now=moment - 60_000, lease=lease, slots=9, is_new=True))
        await store.claim(Claim(session=name, number=1, now=moment - 60_000, queues=("default",), limit=2))
    found = findings()["sessions"]
    await store.close()
    assert found["seen"] == "1 alive, 1 dead with 2 jobs"
    assert (found["level"], found["fix"]) == ("warn", "start a worker: it recovers the jobs of dead sessions")


def test_events_from_the_future_are_told(tmp_path: Path) -> None:
    files.sound(tmp_path / "jobs.db")
    files.change(
        tmp_path / "jobs.db",
        f"insert into reprieve_event (at, job, version, data) values ({now() + 3_600_000}, 1, 1, x'00')",  # noqa: S608 - a number
    )
    found = findings()["events"]
    assert found["level"] == "warn"
    assert re.fullmatch(r"the newest is 3,\d{3} s ahead of this clock", found["seen"])


async def test_a_log_that_cannot_begin_anew_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnostics, "LARGE_WAL_BYTES", 1_000)
    store = SqliteStore(tmp_path / "jobs.db")
    await store.enqueue([new_job(store)], now())
    found = findings()["log"]
    await store.close()
    assert found["level"] == "warn"


def test_memory_needs_no_diagnostics() -> None:
    assert findings("sqlite://:memory:")["file"]["seen"] == "in memory, lost when the process ends"


def test_settings_that_make_no_sense_are_a_finding(tmp_path: Path) -> None:
    (tmp_path / "reprieve.toml").write_text("slots = 0", "utf-8")
    found = findings(status=1)["settings"]
    assert found["level"] == "bad"
    assert "slots from reprieve.toml cannot be used" in found["seen"]


def test_a_url_that_names_no_store_is_a_finding() -> None:
    assert findings("mysql://me:hunter2@db/jobs", status=1)["settings"]["seen"].endswith("'mysql://me:***@db/jobs'")


def test_an_sqlite_that_is_too_old_is_bad(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnostics, "MIN_SQLITE_VERSION", (99, 1, 0))
    assert findings(status=1)["sqlite"]["fix"] == "update it: Reprieve needs 99.1 or newer"


def test_a_clock_that_has_stopped_is_bad(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reprieve.clock.now", lambda: 0)
    found = findings(status=1)["clock"]
    assert found["seen"] == "1970-01-01 00:00:00 UTC, before this release was installed"


def test_the_doctor_colours_what_it_finds_where_colours_are_wanted() -> None:
    assert "\x1b[33mwarn" in process("doctor", URL, FORCE_COLOR="1", TERM="xterm-256color").stdout
    assert "\x1b[33m" not in process("doctor", URL, FORCE_COLOR="1", NO_COLOR="1", TERM="xterm-256color").stdout
