"""The functions in the database, one file each in `functions/`.

The name of a function in the database carries a hash of its text and of the functions that it calls, as in
`take_jobs_3f2a9c01`. Two releases with different functions therefore work on one schema side by side: no function is
ever replaced. Files and statements name a function plainly; `with_hashed_names` puts in the real names.
"""

import hashlib
import re
from functools import cache
from importlib.resources import files
from typing import Final

import msgspec

from reprieve.stores.compatibility import Compatibility

COMPATIBILITY: Final = Compatibility(oldest_schema=1, oldest_release="0.1.0")
"""Which releases can use a schema that this release has migrated.

It is part of every hash: a migration that older releases cannot work with raises it, so that they share no function
with newer ones, and drops their functions."""

HASH_LENGTH: Final = 8
"""Hexadecimal digits of a hash: two versions of one function share them once in four billion times."""


class Function(msgspec.Struct, frozen=True):
    """A function of this release."""

    plain_name: str
    name: str
    """As the database knows it."""
    sql: str
    """The statements that create it, with real names."""


@cache
def functions() -> dict[str, Function]:
    """Return the functions of this release by their plain names, each after those that it calls."""
    folder = files(__package__ or "") / "functions"
    texts = {
        file.name.removesuffix(".sql"): file.read_text("utf-8")
        for file in folder.iterdir()
        if file.name.endswith(".sql")
    }
    return resolve(texts)


def resolve(texts: dict[str, str]) -> dict[str, Function]:
    """Return functions with their real names, given the text of each; raise ValueError when they call in a circle."""
    calls = re.compile(rf"\b({'|'.join(sorted(texts))})(?=\()")
    found: dict[str, Function] = {}

    def add(plain_name: str, callers: tuple[str, ...]) -> str:
        if plain_name in callers:
            message = f"functions call each other in a circle: {', '.join((*callers, plain_name))}"
            raise ValueError(message)
        if plain_name not in found:
            # The comment above the function says nothing to the database, so it is not part of the hash.
            text = texts[plain_name][texts[plain_name].index("create function") :]
            called = set(calls.findall(text)) - {plain_name}
            real = {name: add(name, (*callers, plain_name)) for name in sorted(called)}
            text = calls.sub(lambda call: real.get(call[1], call[1]), text)
            hashed = hashlib.sha256(f"{COMPATIBILITY.oldest_schema}\n{text}".encode()).hexdigest()
            name = f"{plain_name}_{hashed[:HASH_LENGTH]}"
            text = re.sub(rf"\b{plain_name}(?=\()", name, text)
            found[plain_name] = Function(plain_name=plain_name, name=name, sql=text.strip())
        return found[plain_name].name

    for plain_name in sorted(texts):
        add(plain_name, ())
    return found


def with_hashed_names(sql: str) -> str:
    """Return a statement that calls functions by their real names instead of their plain ones."""
    return _calls().sub(lambda call: functions()[call[1]].name, sql)


@cache
def release() -> str:
    """Return the id of this release: a hash of the names of its functions."""
    names = "\n".join(sorted(function.name for function in functions().values()))
    return hashlib.sha256(names.encode()).hexdigest()[: 2 * HASH_LENGTH]


@cache
def _calls() -> re.Pattern[str]:
    return re.compile(rf"\b({'|'.join(sorted(functions()))})(?=\()")
