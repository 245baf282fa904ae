"""The URL of a store: the file that it names, and what to say when its server cannot be reached."""

from pathlib import Path
from urllib.parse import unquote

from reprieve.core.redact import mask_url
from reprieve.errors import InvalidUrl


def unreachable(shown: str, said: str) -> str:
    """Return the message about a server that does not respond: its masked URL, what to do, and its client's error."""
    what = f"the server at {shown}" if shown else "the server"
    return f"{what} cannot be reached; check that it runs, and with reprieve config that the URL is right ({said})"


def path_of(url: str) -> Path | None:
    """Return the file that a SQLite URL names; None: in memory."""
    rest = url.partition("://")[2]
    if rest in (":memory:", "/:memory:"):
        return None
    if not rest.startswith("/") or len(rest) == 1 or "?" in rest:
        shown = mask_url(url)
        message = f"{shown!r} names no file; write sqlite:///jobs.db, with three slashes, or four for an absolute path"
        raise InvalidUrl(message)
    path = unquote(rest[1:])
    if "\0" in path:
        message = f"{mask_url(url)!r} names no file: its name holds a zero byte"
        raise InvalidUrl(message)
    return Path(path)
