"""The conformance suite on SQLite: in memory, and on a file."""

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from reprieve.stores.open import open_store
from reprieve.stores.protocol import Store
from reprieve.testing.conformance import CHECKS
from reprieve.testing.conformance.machine import make_machine

SEEDS, EXAMPLES, STEPS = 16, 125, 50
"""2,000 histories, in pieces that cores can share."""

LONG = 50
"""How many times as many are played by `make faults`."""


@pytest.mark.parametrize("name", CHECKS)
async def test_store_in_memory(name: str) -> None:
    store = open_store("sqlite://:memory:")
    try:
        await CHECKS[name](store)
    finally:
        await store.close()


@pytest.mark.parametrize("name", CHECKS)
async def test_store_in_a_file(name: str, tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/jobs.db")
    try:
        await CHECKS[name](store)
    finally:
        await store.close()


def _play(open_one: Callable[[], Store], examples: int, number: int | None = None) -> None:
    async def opened() -> Store:
        return open_one()

    machine = make_machine(opened)
    run_state_machine_as_test(
        machine if number is None else seed(number)(machine),
        settings=settings(
            max_examples=examples, stateful_step_count=STEPS, suppress_health_check=list(HealthCheck), print_blob=False
        ),
    )


@pytest.mark.parametrize("number", range(SEEDS))
def test_histories_in_memory(number: int) -> None:
    _play(lambda: open_store("sqlite://:memory:"), EXAMPLES, number)


@pytest.mark.parametrize("number", range(2))
def test_histories_in_a_file(number: int, tmp_path: Path) -> None:
    names = count()
    _play(lambda: open_store(f"sqlite:///{tmp_path}/{next(names)}.db", durability="fast"), 50, number)


@pytest.mark.faults
@pytest.mark.parametrize("number", range(SEEDS))
def test_many_more_histories_in_memory(number: int) -> None:
    _play(lambda: open_store("sqlite://:memory:"), LONG * EXAMPLES)
