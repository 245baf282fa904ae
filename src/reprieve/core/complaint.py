"""Complaints: how a decision tells its caller of code of the application that raised, and that it went on without."""

from collections.abc import Callable
from typing import Literal, TypeAlias

Part: TypeAlias = Literal["rules", "backoff"]
"""The part of a policy that raised."""

Complain: TypeAlias = Callable[[Part, Exception], None]


def ignore(_: Part, __: Exception) -> None:
    """Go on without a word."""
