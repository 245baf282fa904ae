"""Pages go on by the order of bytes, whatever the locale of the server."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from reprieve.core.job import Cause
from reprieve.stores.protocol import CauseRequest
from reprieve.stores.redis import RedisStore
from reprieve.stores.redis.scripts import assemble, read_source
from reprieve.testing.conformance import CHECKS
from reprieve.testing.conformance.causes import died
from reprieve.testing.conformance.stage import START, Worker
from tests.servers import redis as servers

NAMES = ["a", "", "aa", "_", "B", "b", "-", "ä", "é", "\x7f", "a\0", "a\0b", "B_", "B.", "ü" * 9]
DRIVER = read_source(
    "driver",
    "-- needs byte_order: is_before_in_bytes\ntable.sort(ARGV, is_before_in_bytes)\nreturn ARGV\n",
)


@pytest.mark.parametrize("sorts_by_bytes", [b"", b" false and"])
def test_lua_sorts_by_bytes(sorts_by_bytes: bytes, redis_url: str) -> None:
    text = assemble(DRIVER).text
    flag = b"local SORTS_BY_BYTES ="
    assert flag in text
    with redis.Redis.from_url(redis_url, protocol=2) as client:
        found = client.eval(text.replace(flag, flag + sorts_by_bytes), 1, "{tag}", *NAMES)
    assert found == sorted(name.encode() for name in NAMES)


@pytest.fixture(scope="module")
def foreign_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server that compares strings as in a dictionary, where its locale can be made."""
    folder: Path = tmp_path_factory.mktemp("locales")
    command = ["localedef", "-i", "en_US", "-f", "UTF-8", str(folder / "en_US.UTF-8")]
    # Without the sources of locales the server has that of C; then `test_lua_sorts_by_bytes` alone tries the slow way.
    is_foreign = shutil.which(command[0]) is not None and not subprocess.run(command, check=False).returncode
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCPATH", str(folder))
        patch.setenv("LC_ALL", "en_US.UTF-8")
        with servers.own() as server:
            with server.client() as client:
                assert bool(client.eval("return 'B' < 'a'", 0)) != is_foreign, "the server has the locale"
            yield server.url


@pytest.mark.parametrize("name", [name for name in CHECKS if "one_millisecond" in name or "come_and_go" in name])
async def test_pages_are_complete_on_a_server_with_another_locale(name: str, foreign_url: str) -> None:
    with redis.Redis.from_url(foreign_url) as client:
        client.flushall()
    store = RedisStore(foreign_url)
    try:
        await CHECKS[name](store)
    finally:
        await store.close()


async def test_pages_of_causes_are_complete_on_a_server_with_another_locale(foreign_url: str) -> None:
    with redis.Redis.from_url(foreign_url) as client:
        client.flushall()
    store = RedisStore(foreign_url)
    worker = await Worker.open(store)
    names = [f"{name}{number}" for number in range(3) for name in ("acme-", "Acme_", "acme.", "ACME", "_acme")]
    for name in names:
        await died(store, worker, Cause(reason="busy", code=name, fingerprint=name))
    cursor, found = "", []
    while True:
        page = await store.causes(CauseRequest(by="code", cursor=cursor, limit=2), START)
        found += [group.name for group in page.groups]
        cursor = page.cursor
        if not cursor:
            break
    await store.close()
    assert sorted(found) == sorted(names)
