"""Lua scripts: put together from the files of `lua/`, each known to the server by its SHA-1.

The header of a file says what it takes from which other file and what it offers to others:

    -- needs lanes: load_lanes, flush
    -- exports: settle

A file with exports is a library. It becomes a block of its own, with its exports declared before it, so nothing else of
it is visible to others; this form costs nothing when a script runs. A file without exports is a script.
"""

import hashlib
import re
from collections.abc import Container, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).with_name("lua")

_NEEDS = re.compile(r"^-- needs (\w+): (.+)$", re.MULTILINE)
_EXPORTS = re.compile(r"^-- exports: (.+)$", re.MULTILINE)
_COMMENT = re.compile(r"(?m)^\s*--.*\n|\s+--\s.*$")


class Script(NamedTuple):
    """A script's text and the hash that the server knows it by."""

    name: str
    text: bytes
    sha: str


class Source(NamedTuple):
    """A file of Lua, and what its header says."""

    name: str
    text: str
    needs: dict[str, tuple[str, ...]]
    """Names that it uses, by the library that exports them."""
    exports: tuple[str, ...]

    def block(self, needed: Container[tuple[str, str]]) -> str:
        """Return the text as it stands in a script, which needs some exports of libraries.

        Lua allows 200 local variables beside each other, so exports that this script does not need are inside.
        """
        # The server keeps every script: comments are left out.
        text = _COMMENT.sub("", self.text)
        if not self.exports:
            return text
        outside = [name for name in self.exports if (self.name, name) in needed]
        inside = [name for name in self.exports if name not in outside]
        return f"{_declared(outside)}do\n{_declared(inside)}{text}end\n"


def _declared(names: Sequence[str]) -> str:
    return f"local {', '.join(names)}\n" if names else ""


def read_source(name: str, text: str) -> Source:
    """Read the header of a file."""
    needs: dict[str, tuple[str, ...]] = {}
    for library, names in _NEEDS.findall(text):
        needs[library] = (*needs.get(library, ()), *names.split(", "))
    exports = tuple(name for names in _EXPORTS.findall(text) for name in names.split(", "))
    return Source(name, text, needs, exports)


@cache
def source(name: str) -> Source:
    """Return a file of Lua by its name."""
    return read_source(name, (FOLDER / f"{name}.lua").read_text("utf-8"))


def assemble(script: Source) -> Script:
    """Put a script together with the libraries that it needs, each once and after those that it needs itself."""
    parts = [*map(source, dict.fromkeys(_libraries(script))), script]
    needed = {(library, name) for part in parts for library, names in part.needs.items() for name in names}
    text = "".join(part.block(needed) for part in parts).encode()
    return Script(script.name, text, hashlib.sha1(text, usedforsecurity=False).hexdigest())


def _libraries(user: Source) -> Iterator[str]:
    for name, needed in user.needs.items():
        library = source(name)
        if missing := set(needed) - set(library.exports):
            message = f"{user.name}.lua needs {', '.join(sorted(missing))}, which {name}.lua does not export"
            raise LookupError(message)
        yield from _libraries(library)
        yield name


@cache
def script(name: str) -> Script:
    """Return a script by its name."""
    return assemble(source(name))
