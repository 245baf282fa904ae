"""Fixtures for pytest. Say `pytest_plugins = ["reprieve.testing.fixtures"]` in your conftest.py to have them."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from reprieve.app import Reprieve
from reprieve.testing.clock import FakeClock


@pytest.fixture
def reprieve_clock() -> FakeClock:
    """A clock that stands still until the test, or a drain, moves it."""
    return FakeClock()


@pytest.fixture
def reprieve_app(reprieve_clock: FakeClock) -> Iterator[Callable[[Reprieve], Reprieve]]:
    """Give an app an empty store in memory and the test's clock, until the test ends: `reprieve_app(app)`."""
    with ExitStack() as stack:

        def prepare(app: Reprieve) -> Reprieve:
            return stack.enter_context(app.override(url="sqlite://:memory:", clock=reprieve_clock))

        yield prepare
