"""Errors in a policy: how a decision reports application code that raised, and goes on without it."""

from collections.abc import Callable
from typing import Literal, TypeAlias

Part: TypeAlias = Literal["rules", "backoff"]
"""The part of a policy that raised."""

OnError: TypeAlias = Callable[[Part, Exception], None]


def ignore(_: Part, __: Exception) -> None:
    """Do nothing."""
