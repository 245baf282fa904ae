"""The event loop of producers, and of workers whose own command knows none but asyncio's: uvloop where it is installed.

`python -m benchmarks.flow.loop benchmarks.flow.sides.arq` runs the `work` of that module.
"""

import asyncio
import importlib
import sys


def new_loop() -> asyncio.AbstractEventLoop:
    """Make a loop."""
    try:
        import uvloop  # noqa: PLC0415 - not everywhere
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def main(module: str) -> None:
    """Run a worker until it is told to end."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(importlib.import_module(module).work())


if __name__ == "__main__":
    main(sys.argv[1])
