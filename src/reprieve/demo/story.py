"""The script of the demo: what happens to the provider, the worker and the jobs."""

import asyncio
import contextlib
import os
import random
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TypeAlias

from msgspec.structs import replace

from reprieve.clock import ticks
from reprieve.core.move import Return
from reprieve.demo.mail import PORT, app, send_mail
from reprieve.demo.provider import Provider
from reprieve.demo.scene import Ending, Scene
from reprieve.stores.gates import read_gate
from reprieve.stores.paginate import find_all
from reprieve.stores.protocol import Filter

TENANTS = {"acme": 0.6, "bolt": 0.3, "cozy": 0.1}
"""Three tenants, and their shares of the jobs."""

ENQUEUE_SECONDS = 14.0
"""The time over which the jobs are enqueued."""

KILL_AT, BROWN_OUT_AT, DOWN_AT, BACK_AT = 3.0, 5.0, 9.0, 14.0
"""Seconds from the start."""

FULL_MAILBOXES = 3
"""Recipients whose mailbox is full until the operator empties it."""

MAX_SECONDS = 90.0
"""The demo fails if it takes longer than this."""

SCENE_SECONDS = 0.2
"""The interval between scenes."""

Tell: TypeAlias = Callable[[str], None]
"""Shows a line about what has just happened."""


class Story:
    """One run of the demo, in a folder of its own."""

    def __init__(self, folder: Path, *, jobs: int, seed: int, tell: Tell) -> None:
        """Prepare a run; `play` starts it."""
        self._folder = folder
        self._jobs = jobs
        self._rng = random.Random(seed)  # noqa: S311 - randomness of a demo
        self._provider = Provider(seed)
        self._tell = tell
        self._ids: list[str] = []
        self._retried: list[str] = []
        self._began = ticks()
        self._environ: dict[str, str] = {}

    async def play(self, show: Callable[[Scene], None]) -> Ending:
        """Run the demo from the first job to the last; return the totals."""
        await self._provider.start()
        url = f"sqlite:///{self._folder / 'demo.db'}"
        app.settings = replace(app.settings, url=url)
        self._environ = os.environ | {
            "REPRIEVE_URL": url,
            "REPRIEVE_SUCCEEDED_KEPT": str(self._jobs + 1),
            PORT: str(self._provider.port),
        }
        try:
            async with self._worker():
                async with asyncio.timeout(MAX_SECONDS), asyncio.TaskGroup() as group:
                    watching = group.create_task(self._watch(show))
                    mails = iter(self._mails())
                    await self._enqueue(next(mails))
                    # Start the script with the worker's first call, however long the worker takes to start.
                    await self._provider.called.wait()
                    self._began = ticks()
                    await asyncio.gather(self._produce(mails), self._disturb())
                    await self._finish()
                    watching.cancel()
                show(await self._scene())
                return await self._count()
        finally:
            await self._provider.stop()
            await app.aclose()

    @contextlib.asynccontextmanager
    async def _worker(self) -> AsyncIterator[None]:
        """Run a worker with two processes."""
        # The worker watches one end; the other is held by this process alone, and so closed when it ends.
        watched, held = os.pipe()
        try:
            with (self._folder / "worker.log").open("wb") as log:
                worker = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "reprieve.demo.worker", str(os.getpid()), str(watched)),
                    pass_fds=[watched],
                    stdout=log,
                    stderr=log,
                    env=self._environ,
                )
            try:
                yield
            finally:
                with contextlib.suppress(ProcessLookupError):
                    worker.terminate()
                await worker.wait()
        finally:
            os.close(watched)
            os.close(held)

    def _mails(self) -> list[tuple[str, str]]:
        """Return the tenants and recipients of the mails; fill a few mailboxes."""
        tenants = self._rng.choices(list(TENANTS), list(TENANTS.values()), k=self._jobs)
        mails = [(tenant, f"{tenant}-{number}@example.org") for number, tenant in enumerate(tenants)]
        self._provider.refused = {recipient for _, recipient in self._rng.sample(mails[1:], FULL_MAILBOXES)}
        return mails

    async def _enqueue(self, mail: tuple[str, str]) -> None:
        tenant, recipient = mail
        job = await send_mail.using(tenant=tenant).aenqueue(recipient, "Welcome")
        self._ids.append(job.id)

    async def _produce(self, mails: Iterator[tuple[str, str]]) -> None:
        """Enqueue the jobs over `ENQUEUE_SECONDS`."""
        for number, mail in enumerate(mails):
            await self._enqueue(mail)
            await asyncio.sleep(max(0.0, self._began + number * ENQUEUE_SECONDS / self._jobs - ticks()))

    async def _disturb(self) -> None:
        """Kill a worker process and take the provider down."""
        self._tell(f"three tenants, {self._jobs:,} mails, and a healthy provider")
        await self._until(KILL_AT)
        self._kill_a_child()
        await self._until(BROWN_OUT_AT)
        await self._provider.become("brown-out")
        self._tell("the provider browns out: it refuses a third of the mails with 451")
        await self._until(DOWN_AT)
        await self._provider.become("down")
        self._tell("the provider is down: connections are refused")
        await self._until(BACK_AT)
        await self._provider.become("healthy")
        self._tell("the provider is back; parked jobs return along the ramp 1, 2, 4 … 64")

    def _kill_a_child(self) -> None:
        process = max(self._provider.workers, key=self._provider.workers.__getitem__)
        os.kill(process, signal.SIGKILL)
        self._tell(f"kill -9 of worker process {process} while it works")

    async def _finish(self) -> None:
        """Wait until all jobs have ended, empty the full mailboxes, and retry the dead jobs."""
        await self._until_ended()
        dead = await find_all(app.store, Filter(statuses=frozenset({"dead"})), app.clock.now())
        self._tell(f"{len(dead)} jobs are dead: 550 mailbox full; an operator empties the mailboxes and retries them")
        self._provider.refused.clear()
        for job in dead:
            await app.job(job.id).aretry(by="demo", reason="the mailbox was emptied", force=True)
            self._retried.append(job.id)
        await self._until_ended()

    async def _until_ended(self) -> None:
        """Wait until every job has succeeded or died."""
        while True:
            counts = (await app.store.tally("status", Filter(), app.clock.now())).counts
            if counts.get("succeeded", 0) + counts.get("dead", 0) >= len(self._ids):
                return
            await app.store.wait((), SCENE_SECONDS)

    async def _watch(self, show: Callable[[Scene], None]) -> None:
        while True:
            show(await self._scene())
            await asyncio.sleep(SCENE_SECONDS)

    async def _until(self, moment: float) -> None:
        await asyncio.sleep(max(0.0, self._began + moment - ticks()))

    async def _scene(self) -> Scene:
        now = app.clock.now()
        smtp = await read_gate(app.store, "smtp")
        tenants = {
            tenant: (await app.store.tally("status", Filter(tenants=(tenant,)), now)).counts for tenant in TENANTS
        }
        return Scene(
            seconds=ticks() - self._began,
            health=self._provider.health,
            gate=smtp.gate.mode,
            calls=self._provider.calls,
            tenants=tenants,
        )

    async def _count(self) -> Ending:
        jobs = {job.id: job for job in await find_all(app.store, Filter(), app.clock.now())}
        accepted = self._provider.accepted
        again = {name: times - 1 for name, times in accepted.items() if times > 1}
        excused = {name: await self._interruptions(name) for name in again}
        known = [jobs[name] for name in self._ids if name in jobs]
        return Ending(
            jobs=len(self._ids),
            attempts=sum(job.attempt for job in known),
            calls=self._provider.calls,
            succeeded=sum(job.state == "succeeded" for job in known),
            retried=sum(job.charged > 0 for job in known),
            parked=sum(job.spared > 0 for job in known),
            dead=sum(job.state == "dead" for job in known),
            came_back=sum(jobs[name].state == "succeeded" for name in self._retried if name in jobs),
            sent_again=sum(again.values()),
            lost=sum(
                name not in jobs or (jobs[name].state == "succeeded" and not accepted[name]) for name in self._ids
            ),
            doubled=sum(max(0, times - excused[name]) for name, times in again.items()),
            seconds=ticks() - self._began,
        )

    async def _interruptions(self, job_id: str) -> int:
        """Return how often the job was returned before its attempt was settled."""
        events = await app.store.events(job_id=job_id)
        return sum(isinstance(event.move, Return) for _, event in events)
