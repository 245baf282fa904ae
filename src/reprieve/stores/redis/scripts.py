"""The scripts: files of Lua, put together from their parts, each known to the server by its hash."""

import hashlib
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

_FOLDER = Path(__file__).with_name("lua")
_NEEDS = re.compile(r"^-- needs: (.+)$", re.MULTILINE)
_EXPORTS = re.compile(r"^-- exports: (.+)$", re.MULTILINE)


class Script(NamedTuple):
    """A script's text and the hash that the server knows it by."""

    name: str
    text: bytes
    sha: str


@cache
def script(name: str) -> Script:
    """Return a script by its name."""
    return assemble(name, (_FOLDER / f"{name}.lua").read_text("utf-8"))


def assemble(name: str, own: str) -> Script:
    """Put a script together from its own text and the files that it needs."""
    needs = _NEEDS.search(own)
    parts = [_block((_FOLDER / f"{part}.lua").read_text("utf-8")) for part in (needs[1].split() if needs else ())]
    # Comments are for people; without them a server keeps less.
    text = re.sub(r"(?m)^\s*--.*\n|\s+--\s.*$", "", "".join((*parts, own))).encode()
    return Script(name, text, hashlib.sha1(text, usedforsecurity=False).hexdigest())


def _block(text: str) -> str:
    """Return a part as it stands in a script: one that says what it exports shows nothing else."""
    exports = _EXPORTS.search(text)
    return f"local {exports[1]}\ndo\n{text}end\n" if exports else text
