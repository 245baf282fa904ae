"""The conformance suite on PostgreSQL, each check and each history in a schema of its own."""

from collections.abc import Iterator
from uuid import uuid4

import psycopg
import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from reprieve.stores.open import open_store
from reprieve.stores.protocol import Store
from reprieve.testing.conformance import CHECKS
from reprieve.testing.conformance.machine import make_machine
from tests.servers.postgres import drop_schema

SEEDS, EXAMPLES, STEPS = 4, 20, 50
"""Few histories, since each call is a trip to the server; `make faults` plays fifty times as many."""

LONG = 50


class Schemas:
    """Fresh, empty stores in one schema, whose rows are deleted between them: faster than to make another."""

    def __init__(self, url: str, server: str) -> None:
        self._schema = f"conformance_{uuid4().hex[:12]}"
        self.url = f"{url}?schema={self._schema}"
        self._server = server
        self._admin = psycopg.connect(server, autocommit=True)

    def fresh(self) -> Store:
        tables = self._admin.execute(
            "select format('delete from %%I.%%I', %(schema)s::text, relname) from pg_class "
            "where relnamespace = to_regnamespace(%(schema)s) and relkind = 'r' "
            "and relname not in ('schema_version', 'release')",
            {"schema": self._schema},
        ).fetchall()
        if tables:
            self._admin.execute("; ".join(statement for (statement,) in tables))
        return open_store(self.url)

    def close(self) -> None:
        self._admin.close()
        drop_schema(self._server, self._schema)


@pytest.fixture(scope="session")
def schemas(postgres_url: str) -> Iterator[Schemas]:
    schemas = Schemas(postgres_url, postgres_url)
    yield schemas
    schemas.close()


@pytest.fixture(scope="session")
def pooled_schemas(pgbouncer_url: str, postgres_url: str) -> Iterator[Schemas]:
    schemas = Schemas(pgbouncer_url, postgres_url)
    yield schemas
    schemas.close()


@pytest.mark.parametrize("name", CHECKS)
async def test_store(name: str, schemas: Schemas) -> None:
    store = schemas.fresh()
    try:
        await CHECKS[name](store)
    finally:
        await store.close()


@pytest.mark.parametrize("name", CHECKS)
async def test_store_behind_a_pooler_of_transactions(name: str, pooled_schemas: Schemas) -> None:
    store = pooled_schemas.fresh()
    try:
        await CHECKS[name](store)
    finally:
        await store.close()


def _play(schemas: Schemas, examples: int, number: int | None = None) -> None:
    async def opened() -> Store:
        return schemas.fresh()

    machine = make_machine(opened)
    run_state_machine_as_test(
        machine if number is None else seed(number)(machine),
        settings=settings(
            max_examples=examples, stateful_step_count=STEPS, suppress_health_check=list(HealthCheck), print_blob=False
        ),
    )


@pytest.mark.parametrize("number", range(SEEDS))
def test_histories(number: int, schemas: Schemas) -> None:
    _play(schemas, EXAMPLES, number)


@pytest.mark.faults
@pytest.mark.parametrize("number", range(SEEDS))
def test_many_more_histories(number: int, schemas: Schemas) -> None:
    _play(schemas, LONG * EXAMPLES)
