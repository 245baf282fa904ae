"""Which code a frame belongs to (the application, a library, Python or Reprieve), and how its file is shown."""

import os
import sysconfig
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Final

from reprieve import errors

_MAX_CACHED: Final = 4_096
_PRODUCT: Final = "reprieve"
_PACKAGE: Final = os.path.join(os.path.dirname(os.path.realpath(errors.__file__)), "")  # noqa: PTH118, PTH120 - compared as text with the paths of code
_STDLIB: Final = tuple(
    dict.fromkeys(
        os.path.join(os.path.realpath(folder), "")  # noqa: PTH118 - as above
        for name in ("stdlib", "platstdlib")
        if (folder := sysconfig.get_path(name))
    )
)
_SITES: Final = ("site-packages", "dist-packages")

_TYPED: Final = ("<stdin>", "<string>", "<console>", "<python-input", "<ipython-input", "<doctest", "<document>")
"""File names of code that was typed at a prompt, or passed to `exec`."""

_own_packages: set[str] = set()


def count_as_own(modules: Iterable[str]) -> None:
    """Count the packages of these modules as the application's own, even where they are installed among libraries."""
    names = {module.partition(".")[0] for module in modules} - {_PRODUCT, "__main__"}
    if not names <= _own_packages:
        _own_packages.update(names)
        library_of.cache_clear()


@lru_cache(maxsize=_MAX_CACHED)
def library_of(filename: str) -> str:
    """Return which library a file belongs to; empty for the application's own."""
    if filename.startswith("<"):
        # Typed code has no file; code that libraries generate (SQLAlchemy, attrs) has a name in brackets as well.
        return "" if filename.startswith(_TYPED) else "python" if filename.startswith("<frozen") else "generated code"
    path = os.path.realpath(filename)
    if path.startswith(_PACKAGE):
        return _PRODUCT
    parts = Path(path).parts
    for number in range(len(parts) - 2, -1, -1):
        if parts[number] in _SITES:
            package = parts[number + 1].removesuffix(".py")
            return "" if package in _own_packages else f"{parts[number]}/{package}"
    for folder in _STDLIB:
        if path.startswith(folder):
            return f"{Path(folder).name}/{Path(path[len(folder) :]).parts[0].removesuffix('.py')}"
    return ""


def is_product(filename: str) -> bool:
    """Return whether a file is part of Reprieve."""
    return library_of(filename) == _PRODUCT


def short_path(filename: str) -> str:
    """Return a path relative to the working folder, if it is below it."""
    try:
        folder = os.path.join(os.getcwd(), "")  # noqa: PTH109, PTH118 - as above
    except OSError:
        # The working folder was deleted.
        return filename
    return filename.removeprefix(folder)
