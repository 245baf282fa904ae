"""A transaction on any SQL database."""

from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias

Statements: TypeAlias = Mapping[str, str]
"""The statements of a file, by their names. A store writes them in its own dialect, with the same named parameters."""


class SqlTx(Protocol):
    """Runs statements in one transaction."""

    def execute(self, statement: str, parameters: dict[str, Any] | None = None) -> object:
        """Run a statement."""
        ...

    def one(self, statement: str, parameters: dict[str, Any] | None = None) -> tuple[Any, ...] | None:
        """Return the first row of a statement."""
        ...

    def all(self, statement: str, parameters: dict[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """Return all rows of a statement."""
        ...
