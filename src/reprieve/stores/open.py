"""Opening a store by its URL."""

from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

from reprieve.errors import InvalidUrl
from reprieve.stores.protocol import LARGEST_PAYLOAD, Store


def open_store(
    url: str,
    *,
    durability: Literal["full", "fast"] = "full",
    largest_payload: int = LARGEST_PAYLOAD,
    shared: bool = False,
) -> Store:
    """Open the store that a URL names: `sqlite:///relative.db`, `sqlite:////absolute.db` or `sqlite://:memory:`.

    It can be used from every event loop and thread of this process.

    `shared` lets jobs stand in a file that an application has tables of its own in.
    """
    scheme, _, rest = url.partition("://")
    if scheme == "sqlite":
        from reprieve.stores.sqlite import SqliteStore  # noqa: PLC0415 - a store is imported when it is used

        return SqliteStore(_path(url, rest), durability=durability, largest_payload=largest_payload, shared=shared)
    message = f"no store answers to {_masked(url)!r}; write sqlite:///jobs.db or sqlite://:memory:"
    raise InvalidUrl(message)


def _path(url: str, rest: str) -> Path | None:
    if rest in (":memory:", "/:memory:"):
        return None
    if not rest.startswith("/") or len(rest) == 1 or "?" in rest:
        message = f"{url!r} names no file; write sqlite:///jobs.db, with three slashes, or four for an absolute path"
        raise InvalidUrl(message)
    path = unquote(rest[1:])
    if "\0" in path:
        message = f"{url!r} names no file: its name holds a zero byte"
        raise InvalidUrl(message)
    return Path(path)


def _masked(url: str) -> str:
    """Hide the password of a URL."""
    try:
        password = urlsplit(url).password
    except ValueError:
        return url.partition("://")[0][:20] + "://…"
    return url.replace(password, "***") if password else url[:200]
