"""The conformance suite on Redis, each check and each history under a prefix of its own, and its books checked."""

from collections.abc import Iterator
from itertools import count

import pytest
import redis
from hypothesis import HealthCheck, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from reprieve.stores.open import open_store
from reprieve.stores.protocol import Store
from reprieve.testing.conformance import CHECKS
from reprieve.testing.conformance.machine import make_machine
from tests.stores.redis.recount import complaints

SEEDS, EXAMPLES, STEPS = 4, 40, 50
"""`make faults` plays fifty times as many."""

LONG = 50


class Prefixes:
    """Fresh, empty stores on one server; what an earlier one has left is checked and removed."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._client = redis.Redis.from_url(url, protocol=2)
        self._numbers = count()
        self._prefix = ""

    def fresh(self) -> Store:
        self.check()
        self._prefix = f"conformance-{next(self._numbers)}"
        return open_store(f"{self._url}?prefix={self._prefix}")

    def check(self) -> None:
        """Check the books of the last store, and remove it."""
        if self._prefix:
            wrong = complaints(self._client, f"{{{self._prefix}:0}}")
            keys = list(self._client.scan_iter(f"{{{self._prefix}:0}}*", count=1_000))
            self._client.unlink(*keys, "")
            self._prefix = ""
            assert wrong == []

    def close(self) -> None:
        self._client.close()


@pytest.fixture(scope="session")
def prefixes(redis_url: str) -> Iterator[Prefixes]:
    prefixes = Prefixes(redis_url)
    yield prefixes
    prefixes.close()


@pytest.mark.parametrize("name", CHECKS)
async def test_store(name: str, prefixes: Prefixes) -> None:
    store = prefixes.fresh()
    try:
        await CHECKS[name](store)
    finally:
        await store.close()
    prefixes.check()


def _play(prefixes: Prefixes, examples: int, number: int | None = None) -> None:
    async def opened() -> Store:
        return prefixes.fresh()

    machine = make_machine(opened)
    run_state_machine_as_test(
        machine if number is None else seed(number)(machine),
        settings=settings(
            max_examples=examples, stateful_step_count=STEPS, suppress_health_check=list(HealthCheck), print_blob=False
        ),
    )
    prefixes.check()


@pytest.mark.parametrize("number", range(SEEDS))
def test_histories(number: int, prefixes: Prefixes) -> None:
    _play(prefixes, EXAMPLES, number)


@pytest.mark.faults
@pytest.mark.parametrize("number", range(SEEDS))
def test_many_more_histories(number: int, prefixes: Prefixes) -> None:
    _play(prefixes, LONG * EXAMPLES)
