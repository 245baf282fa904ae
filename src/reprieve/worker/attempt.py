"""An attempt that is under way, and how it is ended from outside."""

import asyncio
from typing import Literal, TypeAlias

from reprieve.context import Running
from reprieve.core.job import Job

Why: TypeAlias = Literal["cancelled", "overran", "stopped"]
"""Why an attempt was ended from outside."""


class Attempt:
    """A job that is being run here."""

    __slots__ = ("job", "overrun", "running", "slot", "started", "task", "why")

    def __init__(self, running: Running, slot: int, started: float) -> None:
        """Note what starts, where and when."""
        self.running = running
        self.job = running.job
        self.slot = slot
        self.started = started
        self.why: Why | None = None
        self.task: asyncio.Task[None] | None = None
        self.overrun: asyncio.TimerHandle | None = None

    def cancel(self, job: Job) -> None:
        """End it because somebody wants its job cancelled, which says who and why."""
        self.job = job
        self.end("cancelled")

    def end(self, why: Why) -> None:
        """End it from outside. The first reason stands, but one that did not listen is told again."""
        self.running.is_stopping = True
        self.why = self.why or why
        if self.task is not None:
            self.task.cancel()
