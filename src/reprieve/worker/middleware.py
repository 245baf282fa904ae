"""Middleware: functions around every attempt, for tracing, contexts and clean-up."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from reprieve.context import Running

Proceed: TypeAlias = Callable[[], Awaitable[object]]
"""Runs the next middleware, and in the end the task."""

Middleware: TypeAlias = Callable[[Running, Proceed], Awaitable[object]]
"""Takes the running job and `proceed`; returns what the task returned, or raises."""


async def run_through(middleware: list[Middleware], running: Running, proceed: Proceed) -> object:
    """Run an attempt inside every middleware, the first outermost."""
    for layer in reversed(middleware):
        proceed = _around(layer, running, proceed)
    return await proceed()


def _around(layer: Middleware, running: Running, proceed: Proceed) -> Proceed:
    async def call() -> object:
        return await layer(running, proceed)

    return call
