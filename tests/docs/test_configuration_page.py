"""The page about configuration lists every setting with its default, and its files can be read."""

import re
import tomllib
from pathlib import Path
from typing import get_args

import pytest
from msgspec.structs import fields

from reprieve import config
from reprieve.config import Settings
from reprieve.core import presets
from reprieve.core.duration import seconds
from reprieve.core.presets import Profile
from reprieve.core.rule import Rule
from tests.docs.page import code, table, text_of

PAGE = text_of("docs/operate/configuration.md")
NUMBER = '"550"'
ROWS = {code(row["setting"])[0]: row for row in table(PAGE, "setting", "default")}
FIELDS = {field.name: field for field in fields(Settings)}
COMMANDS_ONLY = {"app"}
"""Settings of the command line, which an app does not have."""


def test_every_setting_has_a_row() -> None:
    assert [name for name in ROWS if name not in COMMANDS_ONLY] == [
        name for name in FIELDS if name not in COMMANDS_ONLY
    ]


@pytest.mark.parametrize("name", sorted(FIELDS.keys() - COMMANDS_ONLY))
def test_every_default_is_that_of_the_code(name: str) -> None:
    default = getattr(Settings(), name)
    written = code(ROWS[name]["default"])
    if not default and not isinstance(default, bool | int):
        assert ROWS[name]["default"] == "none"
    elif isinstance(default, float):
        assert [seconds(text) for text in written] == [default]
    else:
        assert written == [str(default).lower()]


def test_every_profile_and_every_durability_is_named() -> None:
    assert set(get_args(Profile)) <= set(code(ROWS["profile"]["meaning"]))
    assert set(get_args(FIELDS["durability"].type)) == set(code(ROWS["durability"]["meaning"]))


def test_the_files_can_be_read(tmp_path: Path) -> None:
    own, project = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (tmp_path / "reprieve.toml").write_text(own, "utf-8")
    settings = config.load({}, tmp_path).settings
    assert (settings.slots, settings.lease) == (50, 30)
    assert settings.policies["shop.send"].max_attempts == 3
    assert settings.policies["shop.send"].deadline == presets.email.deadline
    assert settings.rules == (Rule(code="550", message="quota", kind="transient", scope="tenant"),)
    short = tomllib.loads(project)["tool"]["reprieve"]
    assert short.pop("app") == "shop:app"
    assert short.items() <= tomllib.loads(own).items()


def test_the_words_of_rules_and_policies_are_those_that_a_file_may_use(tmp_path: Path) -> None:
    about_rules, about_policies = (
        PAGE.partition("## Rules and policies")[2].partition("## In code")[0].split("Each `[p")
    )
    delay = '"1m"'
    values = {"kind": '"transient"', "scope": '"job"', "retry_after": delay, "max_attempts": "3", "preset": '"email"'}
    values |= {"retry_delay": delay, "max_retry_delay": delay}
    for text, head in ((about_rules, "[[rules]]"), ("`" + about_policies, '[policies."shop.send"]')):
        words = [word for word in code(text.partition(" takes ")[2].partition(".")[0]) if word.isidentifier()]
        assert len(words) > 3
        written = [f"{word} = {values.get(word, NUMBER)}" for word in words]
        (tmp_path / "reprieve.toml").write_text("\n".join([head, *written]), "utf-8")
        config.load({}, tmp_path)


def test_the_profile_changes_what_the_page_says() -> None:
    differing = [name for name in presets.ALL if presets.named(name, "development") != presets.named(name)]
    assert differing == ["smtp"]
    assert presets.named("smtp", "development") == presets.smtp_dev
    assert sum(presets.smtp_dev.delay(failures) for failures in (1, 2)) == 1.5
    assert sum(presets.smtp.delay(failures) for failures in (1, 2, 3, 4)) == 15
