"""Settings, and where they come from."""

from pathlib import Path

import pytest

from reprieve import Policy, presets
from reprieve.config import Settings, load
from reprieve.core.rule import Rule
from reprieve.errors import InvalidSetting

TOML = """
url = "sqlite:///jobs.db"
profile = "development"
lease = "30s"
heartbeat = 7
processes = 2

[[rules]]
code = "550"
message = "quota"
kind = "transient"

[policies.SCREENSHOT]
preset = "screenshot"

[policies.PDF_GENERATION]
preset = "pdf"
max_attempts = 4
retry_delay = "2s"
"""


def written(folder: Path, text: str) -> Path:
    (folder / "reprieve.toml").write_text(text, "utf-8")
    return folder


def test_without_anything_the_defaults_hold(tmp_path: Path) -> None:
    loaded = load({}, tmp_path)
    assert loaded.settings == Settings()
    assert set(loaded.sources.values()) == {"default"}


def test_a_file_is_read(tmp_path: Path) -> None:
    settings = load({}, written(tmp_path, TOML)).settings
    assert (settings.url, settings.profile, settings.lease, settings.heartbeat) == (
        "sqlite:///jobs.db",
        "development",
        30.0,
        7.0,
    )
    assert settings.rules == (Rule(code="550", message="quota", kind="transient"),)
    assert settings.policies["SCREENSHOT"] == presets.screenshot
    pdf = settings.policies["PDF_GENERATION"]
    assert (pdf.max_attempts, pdf.delay(1), pdf.delay(2)) == (4, 2, 4)


def test_the_environment_goes_over_the_file_and_each_value_knows_its_source(tmp_path: Path) -> None:
    environ = {"REPRIEVE_URL": "sqlite:///other.db", "REPRIEVE_GRACE": "90", "REPRIEVE_SLOTS": "7", "HOME": "/"}
    loaded = load(environ, written(tmp_path, TOML))
    assert (loaded.settings.url, loaded.settings.grace, loaded.settings.slots) == ("sqlite:///other.db", 90.0, 7)
    assert loaded.sources["url"] == "REPRIEVE_URL"
    assert loaded.sources["lease"] == str(tmp_path / "reprieve.toml")
    assert loaded.sources["durability"] == "default"


def test_the_file_may_be_named_elsewhere(tmp_path: Path) -> None:
    elsewhere = tmp_path / "production.toml"
    elsewhere.write_text('url = "sqlite:///p.db"')
    assert load({"REPRIEVE_CONFIG": str(elsewhere)}, tmp_path).settings.url == "sqlite:///p.db"
    with pytest.raises(InvalidSetting, match="does not exist"):
        load({"REPRIEVE_CONFIG": str(tmp_path / "missing.toml")}, tmp_path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("lease = ", "cannot be read"),
        ('colour = "red"', "unknown setting 'colour'"),
        ('lease = "5 minuts"', "lease from .* cannot be used"),
        ("processes = -1", "no whole number from 0"),
        ("processes = true", "no whole number from 0"),
        ('profile = "staging"', "none of production, development"),
        ('policy = "speedy"', "there is no preset"),
        ("url = 5", "is no text"),
        ("heartbeat = 10", "too slow for a lease of 15 s"),
        ("[[rules]]\ncode = 5", "says nothing"),
        ("[policies.x]\ncolour = 1", "knows no 'colour'"),
        ("[policies.x]\nmax_attempts = 0", "leaves no attempt"),
        ("rules = 5", "5 is no array of tables; write each rule under"),
        ('rules = ["550"]', "is no array of tables"),
        ('rules = "550"', "is no array of tables"),
        ("policies = 5", "5 is no table of tables; write each task's policy under"),
        ('policies = ["pdf"]', "is no table of tables"),
        ('[policies]\npdf = "standard"', "is no table of tables"),
        ("lease = 0\nheartbeat = 0", "lease is 0 s; give it more than 0"),
        ("heartbeat = 0", "heartbeat is 0 s"),
        ("stuck_after = 0", "stuck_after is 0 s"),
        ("slots = 0", "no whole number from 1"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(InvalidSetting, match=words) as caught:
        load({}, written(tmp_path, text))
    assert caught.value.code == "invalid_setting"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lease", 0.0),
        ("lease", float("nan")),
        ("heartbeat", 0.0),
        ("heartbeat", -1.0),
        ("stuck_after", 0.0),
        ("grace", -1.0),
        ("succeeded_kept_for", -1.0),
        ("largest_payload", 0),
        ("processes", -1),
        ("slots", 0),
        ("succeeded_kept", -1),
    ],
)
def test_settings_in_code_that_nobody_could_work_with_are_refused_too(name: str, value: float) -> None:
    with pytest.raises(InvalidSetting, match=f"{name} is "):
        Settings(**{name: value})  # type: ignore[arg-type]  # each of its own kind


@pytest.mark.parametrize(("profile", "policy"), [("production", presets.smtp), ("development", presets.smtp_dev)])
def test_policies_are_those_of_the_profile(tmp_path: Path, profile: str, policy: Policy) -> None:
    folder = written(tmp_path, '[policies.send]\npreset = "smtp"\n')
    assert load({"REPRIEVE_PROFILE": profile}, folder).settings.policies == {"send": policy}


def test_a_variable_that_makes_no_sense_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="slots from REPRIEVE_SLOTS cannot be used"):
        load({"REPRIEVE_SLOTS": "many"}, tmp_path)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "reprieve.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidSetting, match="cannot be read"):
        load({}, tmp_path)
