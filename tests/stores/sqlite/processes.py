"""Processes that a test talks to: what they say comes as lines of JSON."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).parents[3]
PATIENCE = 30.0
LONGEST_LINE = 8_000_000


class Program:
    """One of `programs`, running."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, name: str, *arguments: object) -> Self:
        """Start a program."""
        return cls(
            await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "tests.stores.sqlite.programs",
                name,
                *map(str, arguments),
                cwd=ROOT,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                limit=LONGEST_LINE,
            )
        )

    async def read(self) -> dict[str, Any]:
        """Return the next thing that it says."""
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), PATIENCE)
        if not line:
            raise AssertionError((await self._read_errors()).decode())
        facts: dict[str, Any] = json.loads(line)
        return facts

    def tell(self) -> None:
        """Let it do the next thing."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")

    async def end(self) -> None:
        """Wait until it has ended well."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        status = await asyncio.wait_for(self._process.wait(), PATIENCE)
        assert status == 0, (await self._read_errors()).decode()

    async def kill(self) -> None:
        """Kill it, if it still lives."""
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()

    async def _read_errors(self) -> bytes:
        assert self._process.stderr is not None
        return await self._process.stderr.read()
