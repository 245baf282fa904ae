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


def project(folder: Path, text: str) -> Path:
    (folder / "pyproject.toml").write_text(text, "utf-8")
    return folder


def test_settings_may_stand_in_the_file_of_the_project(tmp_path: Path) -> None:
    head = '[project]\nname = "shop"\n[tool.reprieve]\napp = "shop:app"\nslots = 5\n'
    rule = '[[tool.reprieve.rules]]\ncode = "550"\nkind = "transient"\n'
    loaded = load({}, project(tmp_path, head + rule))
    assert (loaded.settings.app, loaded.settings.slots, len(loaded.settings.rules)) == ("shop:app", 5, 1)
    assert loaded.sources["app"] == str(tmp_path / "pyproject.toml")
    assert loaded.sources["url"] == "default"


def test_our_own_file_goes_over_that_of_the_project_setting_by_setting(tmp_path: Path) -> None:
    project(tmp_path, '[tool.reprieve]\napp = "shop:app"\nslots = 5')
    loaded = load({"REPRIEVE_APP": "other:app"}, written(tmp_path, "slots = 7"))
    assert (loaded.settings.app, loaded.settings.slots) == ("other:app", 7)
    assert (loaded.sources["app"], loaded.sources["slots"]) == ("REPRIEVE_APP", str(tmp_path / "reprieve.toml"))
    assert load({}, tmp_path).settings.app == "shop:app"


def test_a_named_file_is_read_in_the_place_of_both(tmp_path: Path) -> None:
    written(project(tmp_path, "[tool.reprieve]\nslots = 5"), "grace = 1")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    named = project(elsewhere, "[tool.reprieve]\nlease = 60")
    settings = load({"REPRIEVE_CONFIG": str(named / "pyproject.toml")}, tmp_path).settings
    assert (settings.lease, settings.slots, settings.grace) == (60.0, 20, 30.0)


def test_a_project_that_does_not_speak_of_us_is_left_alone(tmp_path: Path) -> None:
    assert load({}, project(tmp_path, "[tool.other\nbroken")).settings == Settings()
    assert load({}, project(tmp_path, 'tool = "reprieve"')).settings == Settings()
    assert load({}, project(tmp_path, '[project]\ndependencies = ["reprieve"]')).settings == Settings()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[tool.reprieve]\nurll = 'x'", r"pyproject\.toml has an unknown setting 'urll'; did you mean url\?"),
        ("[tool.reprieve]\nslots = 0", r"slots from .*pyproject\.toml cannot be used"),
        ("[tool]\nreprieve = 5", r"pyproject\.toml has a tool\.reprieve that is not a table"),
        ("[tool.reprieve", r"pyproject\.toml cannot be read"),
    ],
)
def test_a_mistake_in_the_file_of_the_project_names_file_and_setting(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(InvalidSetting, match=words):
        load({}, project(tmp_path, text))


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
        ("processes = -1", "must be a whole number of 0 or more, got -1"),
        ("processes = true", "must be a whole number of 0 or more, got True"),
        ('slots = "many"', "slots from .* cannot be used: must be a whole number of 1 or more, got 'many'$"),
        ("slots = 1.5", "must be a whole number of 1 or more, got 1.5"),
        ('profile = "staging"', "must be one of production, development, got 'staging'"),
        ('policy = "speedy"', "there is no preset"),
        ("url = 5", "must be text that is not empty, got 5"),
        ("heartbeat = 10", "heartbeat must be at most half of the lease of 15 s, got 10 s"),
        ("[[rules]]\ncode = 5", "has no effect"),
        ("[policies.x]\ncolour = 1", "unknown settings: 'colour'"),
        ("[policies.x]\nmax_attempts = 0", "must be a whole number of 1 or more, got 0"),
        ("rules = 5", "must be an array of tables, each rule under .*, got 5"),
        ('rules = ["550"]', "must be an array of tables"),
        ('rules = "550"', "must be an array of tables"),
        ("policies = 5", "must be a table of tables, each task's policy under .*, got 5"),
        ('policies = ["pdf"]', "must be a table of tables"),
        ('[policies]\npdf = "standard"', "must be a table of tables"),
        ("lease = 0\nheartbeat = 0", "lease must be more than 0 s, got 0 s"),
        ("heartbeat = 0", "heartbeat must be more than 0 s"),
        ("stuck_after = 0", "stuck_after must be more than 0 s"),
        ("unknown_after = 0", "unknown_after must be more than 0 s"),
        ("slots = 0", "must be a whole number of 1 or more, got 0"),
    ],
)
def test_an_invalid_setting_is_refused(tmp_path: Path, text: str, words: str) -> None:
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
        ("events_kept", 0),
        ("events_kept_for", 0.0),
    ],
)
def test_invalid_settings_in_code_are_refused_too(name: str, value: float) -> None:
    with pytest.raises(InvalidSetting, match=f"{name} must be "):
        Settings(**{name: value})  # type: ignore[arg-type]  # each of its own kind


@pytest.mark.parametrize(("profile", "policy"), [("production", presets.smtp), ("development", presets.smtp_dev)])
def test_policies_are_those_of_the_profile(tmp_path: Path, profile: str, policy: Policy) -> None:
    folder = written(tmp_path, '[policies.send]\npreset = "smtp"\n')
    assert load({"REPRIEVE_PROFILE": profile}, folder).settings.policies == {"send": policy}


def test_a_variable_that_makes_no_sense_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="slots from REPRIEVE_SLOTS cannot be used"):
        load({"REPRIEVE_SLOTS": "many"}, tmp_path)


def test_a_misspelt_variable_is_told_and_one_of_the_applications_own_is_not(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match=r"REPRIEVE_SLTOS is not a setting; did you mean REPRIEVE_SLOTS\?"):
        load({"REPRIEVE_SLTOS": "4"}, tmp_path)
    own = {"REPRIEVE_DB_URL": "x", "REPRIEVE_TEST_POSTGRES": "x", "REPRIEVE_THEME": "dark"}
    assert load(own, tmp_path).settings == Settings()


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "reprieve.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidSetting, match="cannot be read"):
        load({}, tmp_path)
