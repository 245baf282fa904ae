"""`reprieve config`: every setting with its source, and no secrets."""

from pathlib import Path

import msgspec
import pytest

from reprieve.config import Settings
from reprieve.core.redact import mask_url
from tests.cli.shell import answer, complaint, reprieve

TOML = """
url = "sqlite:///jobs.db"
lease = "30s"

[[rules]]
code = "550"
message = "quota"
kind = "transient"

[policies.PDF_GENERATION]
preset = "pdf"
max_attempts = 4
retry_delay = "2s"
"""


def rows() -> dict[str, list[str]]:
    lines = reprieve("config", env={"COLUMNS": "160"}).stdout.splitlines()
    return {line.split()[0]: line.split()[1:] for line in lines if line}


def test_every_setting_is_shown_with_its_default() -> None:
    shown = rows()
    for name in Settings.__struct_fields__:
        assert shown[name][-1] == "default"
    assert shown["stuck_after"][0] == "30m"
    assert shown["rules"][0] == "none"


def test_every_setting_knows_where_it_came_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "reprieve.toml").write_text(TOML, "utf-8")
    monkeypatch.setenv("REPRIEVE_SLOTS", "7")
    shown = rows()
    assert shown["url"] == ["sqlite:///jobs.db", "reprieve.toml"]
    assert shown["lease"] == ["30s", "reprieve.toml"]
    assert shown["slots"] == ["7", "REPRIEVE_SLOTS"]
    assert shown["grace"] == ["30s", "default"]
    assert shown["rules"] == ["rule:code=550,message=quota", "is", "transient", "reprieve.toml"]
    assert " ".join(shown["policies"]) == "PDF_GENERATION: 4 attempts, waits 2s, 4s, 8s reprieve.toml"


def test_scripts_get_values_and_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "reprieve.toml").write_text(TOML, "utf-8")
    monkeypatch.setenv("REPRIEVE_GRACE", "1m30s")
    told = answer("config")
    assert set(told) == {field.encode_name for field in msgspec.structs.fields(Settings)}
    assert told["grace"] == {"value": 90.0, "source": "REPRIEVE_GRACE"}
    assert told["largestPayload"] == {"value": 262_144, "source": "default"}
    assert told["rules"]["value"] == [{"code": "550", "message": "quota", "kind": "transient"}]
    assert [wait["wait"] for wait in told["policies"]["value"]["PDF_GENERATION"]["waits"]] == [2, 4, 8]


def test_a_password_in_the_url_is_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRIEVE_URL", "postgresql://app:hunter2@db.example/jobs")
    monkeypatch.setenv("REPRIEVE_OUTBOX", "postgresql://app:hunter2@db.example/app")
    assert "hunter2" not in reprieve("config").stdout
    assert answer("config")["outbox"]["value"] == "postgresql://app:***@db.example/app"
    assert answer("config")["url"]["value"] == "postgresql://app:***@db.example/jobs"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sqlite:///jobs.db", "sqlite:///jobs.db"),
        ("sqlite:////var/me@home/jobs.db", "sqlite:////var/me@home/jobs.db"),
        ("redis://localhost:6379/0", "redis://localhost:6379/0"),
        ("redis://:s@localhost:6379/0", "redis://:***@localhost:6379/0"),
        ("redis://:a/b?c#d@localhost/0", "redis://:***@localhost/0"),
        ("postgresql://me:p%40ss@h1,h2/db?sslmode=require", "postgresql://me:***@h1,h2/db?sslmode=require"),
        ("postgresql://h/db?user=me&password=open&x=1", "postgresql://h/db?user=me&password=***&x=1"),
        ("postgresql://h/db?sslpassword=open", "postgresql://h/db?sslpassword=***"),
        ("postgresql://h/db?listen=postgresql%3A%2F%2Fu%3Aopen%40h&x=1", "postgresql://h/db?listen=***&x=1"),
        ("http://[broken:secret@x", "http://[broken:***@x"),
        ("redis://a\x1b[2J\udcff", "redis://a?[2J?"),
    ],
)
def test_urls_are_shown_without_their_secrets(url: str, shown: str) -> None:
    assert mask_url(url) == shown


def test_settings_that_make_no_sense_are_refused_with_status_2(tmp_path: Path) -> None:
    (tmp_path / "reprieve.toml").write_text("lease = ", "utf-8")
    assert "reprieve.toml cannot be read" in complaint("config", status=2)


def test_a_file_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRIEVE_CONFIG", "elsewhere.toml")
    assert "elsewhere.toml does not exist" in complaint("config", status=2)
