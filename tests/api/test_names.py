"""The public names: few, lazy, and the same for people, programs and type checkers."""

import ast
import subprocess
import sys
from pathlib import Path
from typing import get_origin

import pytest

import reprieve
from reprieve import backoff
from reprieve.context import Running
from reprieve.worker.middleware import Middleware, Proceed

SOURCE = ast.parse(Path(reprieve.__file__).read_text("utf-8"))


def names_for_type_checkers() -> set[str]:
    (branch,) = (node for node in SOURCE.body if isinstance(node, ast.If))
    return {alias.name for node in branch.body if isinstance(node, ast.ImportFrom) for alias in node.names}


def test_type_checkers_see_exactly_the_public_names() -> None:
    assert names_for_type_checkers() == set(reprieve.__all__)


@pytest.mark.parametrize("name", reprieve.__all__)
def test_every_public_name_is_the_thing_that_it_names(name: str) -> None:
    found = getattr(reprieve, name)
    # An alias of a type has the name of what it stands for.
    if get_origin(found) is None:
        assert getattr(found, "__name__", name).rpartition(".")[2] == name
    assert name in dir(reprieve)


def test_the_top_level_stays_small() -> None:
    assert len(reprieve.__all__) <= 25


def test_a_name_has_one_place_to_be_imported_from() -> None:
    for name in (*backoff.__all__, "RetryPolicy", "retry_failed_job"):
        with pytest.raises(AttributeError):
            getattr(reprieve, name)


def test_modules_are_there_without_an_import_of_their_own() -> None:
    program = "import reprieve; print(reprieve.backoff.fixed('5s').delay(1), reprieve.presets.pdf.delay(1))"
    assert python(program) == "5.0 5.0"


def test_the_package_says_that_it_is_typed() -> None:
    assert Path(reprieve.__file__).with_name("py.typed").exists()


def test_what_goes_around_attempts_has_public_names() -> None:
    assert (reprieve.Running, reprieve.Proceed, reprieve.Middleware) == (Running, Proceed, Middleware)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'reprieve' has no attribute 'nonsense'"):
        getattr(reprieve, "nonsense")  # noqa: B009 - a checker would see the mistake


def test_a_star_import_brings_the_public_names() -> None:
    program = "from reprieve import *; print(presets.email.delay(3), classify('Throttling').kind, errors.__name__)"
    assert python(program) == "4.0 throttled reprieve.errors"


def test_the_package_alone_imports_nothing_of_its_own() -> None:
    program = "import sys, reprieve; print(*(name for name in sys.modules if name.startswith('reprieve.')))"
    assert python(program) == ""


def python(program: str) -> str:
    """Run a program in a fresh interpreter."""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60)
    return done.stdout.strip()
