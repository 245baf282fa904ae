"""The URL of a store: what it names, and how it is shown without its secrets."""

from pathlib import Path
from urllib.parse import unquote

from reprieve.core.redact import mask_url
from reprieve.errors import InvalidUrl


def masked(url: str) -> str:
    """Return a URL without its password and whatever else in it looks like a secret."""
    return mask_url(url)


def unreachable(shown: str, said: str) -> str:
    """Return what to say of a server that does not answer: its masked URL, what to do, and what its client said."""
    what = f"the server at {shown}" if shown else "the server"
    return f"{what} cannot be reached; check that it runs, and with reprieve config that the URL is right ({said})"


def path_of(url: str) -> Path | None:
    """Return the file that a SQLite URL names; None is memory."""
    rest = url.partition("://")[2]
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
