"""The page about public names lists what the modules have, and nothing else."""

from importlib import import_module

import pytest

import reprieve
from reprieve import backoff, compat
from tests.docs.page import code, table, text_of

PAGE = text_of("docs/reference/python.md")
MODULES = {code(row["module"])[0]: code(row["names"]) for row in table(PAGE, "module")}


def test_every_name_of_the_top_level_has_a_row() -> None:
    listed = [name for row in table(PAGE, "name") for name in code(row["name"])]
    assert sorted(listed) == sorted(reprieve.__all__)


def test_every_backoff_and_jitter_is_listed() -> None:
    assert sorted(MODULES["reprieve.backoff"]) == sorted(backoff.__all__)


@pytest.mark.parametrize("module", MODULES)
def test_every_name_that_is_listed_is_in_its_module(module: str) -> None:
    home = import_module(module)
    names = [name for name in MODULES[module] if name.isidentifier() and name != "code"]
    assert [name for name in names if not hasattr(home, name)] == []


def test_every_function_for_other_systems_has_a_row() -> None:
    rows = table(text_of("docs/reference/compat.md"), "function")
    listed = {name.partition("(")[0].partition(".")[0] for row in rows for name in code(row["function"])}
    assert listed | {"aretry_failed_job"} == set(compat.__all__)
