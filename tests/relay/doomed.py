"""A relay that kills or stops itself: `python -m tests.relay.doomed STORE OUTBOX POINT SIGNAL`.

The point is a step and whether it dies before or after it, as `deliver-after`; it dies when it comes there again.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from inspect import iscoroutinefunction
from itertools import count
from typing import Any

from reprieve import Reprieve
from reprieve.config import Settings
from reprieve.relay import Relay

STEPS = ("prepare", "take", "deliver", "settle", "note_removed")
AGAIN = 2


def doom(target: Any, step: str, when: str, how: signal.Signals) -> None:  # noqa: ANN401 - either end of a relay
    """Let a step of one end be the last thing that this process does, the second time."""
    real: Callable[..., Any] = getattr(target, step)
    visits = count(1)

    def pass_by(here: str) -> None:
        if here == when and next(visits) == AGAIN:
            os.kill(os.getpid(), how)

    async def awaited(*args: object) -> object:
        pass_by("before")
        answer: object = await real(*args)
        pass_by("after")
        return answer

    def called(*args: object) -> None:
        pass_by("before")
        real(*args)
        pass_by("after")

    setattr(target, step, awaited if iscoroutinefunction(real) else called)


async def relay(store: str, outbox: str, point: str, how: str) -> None:
    app = Reprieve(store, outbox=outbox, settings=Settings())
    assert app.outbox is not None
    relay = Relay(app.outbox, app.store, app.clock)
    step, when = point.split("-")
    ends: list[Any] = [app.outbox, relay._sink]  # noqa: SLF001 - it is told where to die
    doom(next(end for end in ends if hasattr(end, step)), step, when, signal.Signals[how])
    await relay.run()


if __name__ == "__main__":
    asyncio.run(relay(*sys.argv[1:]))
