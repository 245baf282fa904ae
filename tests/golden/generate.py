"""Write the bytes of this release: its formats, and a copy of a store of each kind with what can be read of it."""

import asyncio
import tempfile
from pathlib import Path

import msgspec

from reprieve.stores.open import open_store
from tests.golden import dumps, filled
from tests.golden.written import written
from tests.servers import postgres, redis


def write_formats(folder: Path) -> None:
    """Write every value of every format."""
    (folder / "formats.json").write_bytes(_json(written()))


def write_stores(folder: Path) -> None:
    """Write a copy of a store of each kind."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "jobs.db"
        _fill(f"sqlite:///{path}", folder / "sqlite.json")
        dumps.dump_sqlite(path, folder / dumps.FILES["sqlite"])
    with postgres.own() as server:
        _fill(f"{server.url}?schema={dumps.SCHEMA}", folder / "postgres.json")
        dumps.dump_postgres(server.url, folder / dumps.FILES["postgres"])
    with redis.own() as keys:
        _fill(keys.url, folder / "redis.json")
        dumps.dump_redis(keys, folder / dumps.FILES["redis"])


def _fill(url: str, target: Path) -> None:
    async def run() -> dict[str, object]:
        store = open_store(url)
        try:
            await filled.fill(store)
            return await filled.everything(store)
        finally:
            await store.close()

    target.write_bytes(_json(asyncio.run(run())))


def _json(value: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"
