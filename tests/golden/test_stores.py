"""Stores that releases made are opened by this one: everything is read as it was, and a worker drains them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from reprieve.stores.open import diagnostics_for, open_store
from reprieve.testing.conformance.recount import differences
from tests.golden import dumps, filled
from tests.golden.plain import disagreements

KINDS = ("sqlite", "postgres", "redis")


@contextmanager
def restored(kind: str, folder: Path, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Make a store of a copy; return its URL."""
    source = folder / dumps.FILES[kind]
    match kind:
        case "sqlite":
            place = tmp_path / folder.name
            place.mkdir()
            with dumps.restore_sqlite(source, place) as url:
                yield url
        case "postgres":
            with dumps.restore_postgres(source, request.getfixturevalue("postgres_url")) as url:
                yield url
        case _:
            with dumps.restore_redis(source) as url:
                yield url


@pytest.mark.parametrize("kind", KINDS)
async def test_a_store_of_every_release_is_read_as_it_was_and_drained(
    kind: str, folders: list[Path], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    for folder in folders:
        with restored(kind, folder, request, tmp_path) as url:
            assert diagnostics_for(url).migrate().is_current
            store = open_store(url)
            try:
                kept = msgspec.json.decode((folder / f"{kind}.json").read_bytes(), type=dict[str, object])
                assert disagreements(await filled.everything(store), kept) == []
                assert await differences(store, filled.NOW) == []
                counted = await filled.drain(store)
                assert set(counted) == {"dead", "cancelled", "succeeded"}
                assert await differences(store, filled.LATER) == []
            finally:
                await store.close()
