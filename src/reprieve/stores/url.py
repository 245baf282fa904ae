"""The URL of a store: what it names, and how it is shown without its secrets."""

import re
from pathlib import Path
from urllib.parse import unquote

from reprieve.errors import InvalidUrl

_USER = re.compile(r"(?<=://)([^:@]*:).*@", re.DOTALL)
_SECRET = re.compile(r"([?&][^=&]*(?:passw|secret|token|key|listen)[^=&]*=)[^&#]*", re.IGNORECASE)
"""`listen` is a URL inside of the URL, with a password of its own."""

_LONGEST = 200


def masked(url: str) -> str:
    """Hide the password of a URL, and whatever else in it looks like a secret; rather too much than too little."""
    hidden = _SECRET.sub(r"\1***", _USER.sub(r"\1***@", url))
    return "".join(letter if letter.isprintable() else "?" for letter in hidden[:_LONGEST])


def path_of(url: str) -> Path | None:
    """Answer the file that a SQLite URL names; None is memory."""
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
