"""The event loop: uvloop where it is installed, asyncio's own elsewhere."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end."""
    with make_runner() as runner:
        return runner.run(work)


def make_runner() -> asyncio.Runner:
    """Return what runs coroutines in one event loop, until it is closed."""
    return asyncio.Runner(loop_factory=_factory())


def _factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return the function that makes uvloop's event loops; None where it is not installed."""
    # Nothing runs inside the `except`: the application's exceptions would show the missing module as their context.
    try:
        import uvloop  # noqa: PLC0415 - an optional extra
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
