"""The scripts: files of Lua, put together from their parts, each known to the server by its hash."""

import hashlib
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

_FOLDER = Path(__file__).with_name("lua")
_NEEDS = re.compile(r"^-- needs: (.+)$", re.MULTILINE)


class Script(NamedTuple):
    """A script's text and the hash that the server knows it by."""

    name: str
    text: bytes
    sha: str


@cache
def script(name: str) -> Script:
    """Return a script by its name."""
    own = (_FOLDER / f"{name}.lua").read_text("utf-8")
    needs = _NEEDS.search(own)
    parts = [(_FOLDER / f"{part}.lua").read_text("utf-8") for part in (needs[1].split() if needs else ())]
    # Comments are for people; without them a server keeps less.
    text = re.sub(r"(?m)^\s*--.*\n|\s+--\s.*$", "", "".join((*parts, own))).encode()
    return Script(name, text, hashlib.sha1(text, usedforsecurity=False).hexdigest())
