"""Every number on the page about policies is that of the code."""

import inspect
from typing import cast, get_args

import pytest

import reprieve
from reprieve.backoff import Backoff, Exponential, Jitter
from reprieve.cli.schedule import schedule_of, spell_attempts, spell_waits
from reprieve.core import presets
from reprieve.core.backoff import STANDARD
from reprieve.core.classify import TABLES
from reprieve.core.duration import seconds, spell
from reprieve.core.policy import Policy
from reprieve.core.verdict import Kind, Scope
from scripts import backoffs
from tests.docs.page import ROOT, code, table, text_of

PAGE = text_of("docs/learn/policies.md")
PUBLIC = {name: getattr(home, name) for home in (reprieve, reprieve.backoff) for name in home.__all__}
LAST_DRAW = 1 - 1e-9


def made(expression: str) -> object:
    return eval(expression, dict(PUBLIC))  # noqa: S307 - our own page


def test_every_argument_of_a_policy_has_a_row_with_its_default() -> None:
    rows = {code(row["argument"])[0]: row["default"] for row in table(PAGE, "argument", "type")}
    parameters = inspect.signature(Policy).parameters
    assert rows.keys() == parameters.keys()
    plain = {name: parameters[name].default for name in ("max_attempts", "window", "deadline", "max_crashes")}
    assert {name: rows[name] for name in plain} == {name: str(value) for name, value in plain.items()}
    assert seconds(rows["max_parked"]) == Policy().max_parked
    assert Policy().backoff == STANDARD == presets.standard.backoff
    assert rows["rules"].split(", ") == [str(rules.__name__).rpartition(".")[2] for rules in TABLES]  # type: ignore[attr-defined]  # modules


@pytest.mark.parametrize("row", table(PAGE, "backoff", "1"), ids=lambda row: row["backoff"])
def test_every_backoff_waits_as_long_as_its_row_says(row: dict[str, str]) -> None:
    backoff = made(code(row.pop("backoff"))[0])
    assert isinstance(backoff, Backoff)
    assert [spell(backoff.delay(int(failures))) for failures in row] == list(row.values())


@pytest.mark.parametrize("row", table(PAGE, "jitter"), ids=lambda row: row["jitter"])
def test_every_jitter_spreads_as_far_as_its_row_says(row: dict[str, str]) -> None:
    jitter = cast("Jitter | float", made(code(row["jitter"])[0]) if code(row["jitter"]) else 0.0)
    backoff = Exponential("1s", cap="60s", jitter=jitter)
    for column, failures in (("a wait of 8 s", 4), ("a wait at the cap of 60 s", 7)):
        bounds = (backoff.delay(failures, 0.0), backoff.delay(failures, LAST_DRAW))
        assert row[column] == " – ".join(spell(round(bound, 6)) for bound in bounds)


def test_every_kind_and_every_scope_has_a_row() -> None:
    assert [code(row["kind"])[0] for row in table(PAGE, "kind")] == list(get_args(Kind))
    assert [code(row["scope"])[0] for row in table(PAGE, "scope")] == list(get_args(Scope))


def test_every_preset_has_a_row_with_all_its_numbers() -> None:
    schedules = [schedule_of(policy, name) for name, policy in presets.ALL.items()]
    assert table(PAGE, "preset") == [
        {
            "preset": f"`{each.name}`",
            "attempts": spell_attempts(each),
            "waits before jitter": spell_waits(each),
            "cap": "none" if each.cap is None else spell(each.cap),
            "jitter": each.jitter,
            "deadline": "none" if each.deadline is None else spell(each.deadline),
            "in all": spell(each.total),
        }
        for each in schedules
    ]


def test_the_picture_is_the_one_that_the_script_draws() -> None:
    assert (ROOT / "docs/learn/backoffs.svg").read_text("utf-8") == backoffs.draw(), "run python -m scripts.backoffs"
