"""ARCHITECTURE.md names every package and every module of the top level and the core, and the layers as checked."""

import re
import tomllib
from pathlib import Path

from tests.docs.page import ROOT, text_of

PAGE = text_of("ARCHITECTURE.md")
PACKAGE = ROOT / "src/reprieve"
MAX_LINES = 110
"""About a page."""


def named_files(text: str) -> set[str]:
    return {Path(name).name for name in re.findall(r"`([\w/.]+\.py)`", text)}


def test_every_package_is_named() -> None:
    named = {Path(name).name for name in re.findall(r"`([\w/]+)/`", PAGE)}
    packages = {path.parent.name for path in PACKAGE.rglob("__init__.py")} - {"reprieve"}
    assert packages - named == set()


def test_every_module_of_the_top_level_is_named() -> None:
    parts = PAGE.partition("## Parts")[2].partition("Inside the core:")[0]
    assert {path.name for path in PACKAGE.glob("*.py")} - named_files(parts) == set()


def test_every_module_of_the_core_is_named() -> None:
    core = PAGE.partition("Inside the core:")[2].partition("## Rules")[0]
    assert {path.name for path in (PACKAGE / "core").glob("*.py")} - named_files(core) == {"__init__.py"}


def test_every_file_that_is_named_exists() -> None:
    existing = {path.name for path in PACKAGE.rglob("*.py")}
    assert named_files(PAGE) - existing == set()


def test_the_layers_are_those_that_are_checked() -> None:
    contracts = tomllib.loads(text_of("pyproject.toml"))["tool"]["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract["name"] == "Layers point one way")
    existing = {path.stem for path in PACKAGE.iterdir()}
    checked = [set(re.findall(r"\w+", layer)) & existing for layer in layers]
    rule = PAGE.partition("Imports point one way:")[2].partition(". ")[0]
    drawn = [set(re.findall(r"`(\w+)`", layer)) for layer in rule.split("→")]
    # The leaves are not listed: they are the modules that no other layer names.
    assert [named for named in drawn if named] == [checked[place] for place, named in enumerate(drawn) if named]
    assert len(drawn) == len(checked)


def test_it_stays_one_page() -> None:
    assert len(PAGE.splitlines()) <= MAX_LINES
