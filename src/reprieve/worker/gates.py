"""The gates, as one worker process sees them, and how the fleet agrees on them.

Each process hears the results of its own calls and steps its own copy of a gate at once, so that an outage stops it
within its next few calls. What it heard is shared through a cell of the store, together with the permits that the claim
honours, in one write: the fleet's gate is the one in the cell. Successes of a dependency that is well are not worth
telling.
"""

import asyncio
from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from reprieve.clock import Clock
from reprieve.core.gate import Calls, Gate, PushBack, Signal, Tick, signal_of, step
from reprieve.core.job import Job
from reprieve.core.verdict import Verdict
from reprieve.stores.protocol import Cell, Regulation, Store

PREFIX = "gate:"
"""What the keys of gates begin with."""

CALM = 0.01
"""The running share of failures below which a dependency counts as well."""

SHARE_EVERY = 0.1
"""Seconds between two writes of a gate that is open."""

WITNESSES = 8
"""Jobs that are named as having failed, at the most."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Gate).decode


class Gates:
    """Every gate that this process has to do with."""

    def __init__(self, store: Store, clock: Clock, under_way: Callable[[str], int]) -> None:
        """Take where gates are shared, and what knows how many calls of a dependency are under way here."""
        self._store = store
        self._clock = clock
        self._under_way = under_way
        self._gates: dict[str, Gate] = {}
        self._versions: dict[str, int] = {}
        self._heard: dict[str, list[Signal]] = {}
        self._news = asyncio.Event()
        self._urgent = False

    def of(self, dependency: str) -> Gate | None:
        """Answer the gate of a dependency; a job without one has nobody else to blame."""
        if not dependency:
            return None
        return self._gates.get(dependency) or Gate(dependency=dependency)

    def is_held(self, dependency: str) -> bool:
        """Whether nothing may start: what was fetched before is better given back."""
        gate = self._gates.get(dependency)
        return gate is not None and gate.mode == "held"

    def hear(self, job: Job, verdict: Verdict | None) -> None:
        """Hear how a call ended; no verdict is a success."""
        gate = self.of(job.dependency)
        if gate is None or (verdict is None and _is_well(gate)):
            return
        if gate.mode != "open" and (job.leased_at or 0) < gate.since_at:
            # It began before the gate was held, and says nothing about how things are now.
            return
        now = self._clock.now()
        signal = signal_of(job.id, verdict, now)
        if signal is None:
            return
        if isinstance(signal, Calls):
            signal = replace(signal, under_way=self._under_way(job.dependency))
        after = step(gate, signal, now)
        self._gates[job.dependency] = after
        self._heard.setdefault(job.dependency, []).append(signal)
        self._urgent = self._urgent or after.mode != "open"
        self._news.set()

    async def refresh(self) -> None:
        """Read what the fleet agrees on."""
        for cell in await self._store.cells(PREFIX):
            self._take(cell)

    async def keep(self) -> None:
        """Share what is heard, and let probes through when it is time; for as long as the worker lives."""
        while True:
            await self._wait_for_news()
            if not self._urgent:
                # What is open can wait for company.
                await asyncio.sleep(SHARE_EVERY)
            self._news.clear()
            self._urgent = False
            await self.share_all()

    def next_probe_at(self) -> int | None:
        """Answer when the next held gate lets a probe through."""
        moments = [gate.probe_at for gate in self._gates.values() if gate.mode == "held" and gate.probe_at is not None]
        return min(moments, default=None)

    async def share_all(self) -> None:
        """Write whatever was heard, and what the time brings."""
        now = self._clock.now()
        due = [name for name, gate in self._gates.items() if gate.probe_at is not None and gate.probe_at <= now]
        for dependency in dict.fromkeys((*self._heard, *due)):
            await self.share(dependency)

    async def share(self, dependency: str) -> None:
        """Write what was heard of one dependency into the fleet's gate."""
        heard = _merge(self._heard.pop(dependency, []))
        try:
            while not await self._try_to_share(dependency, heard):
                await self.refresh()
        except BaseException:
            # What could not be told yet is told later.
            self._heard[dependency] = [*heard, *self._heard.get(dependency, [])]
            raise

    async def _try_to_share(self, dependency: str, heard: list[Signal]) -> bool:
        key, now = PREFIX + dependency, self._clock.now()
        cells = [cell for cell in await self._store.cells(key) if cell.key == key]
        before = _decode(cells[0].value) if cells else Gate(dependency=dependency)
        version = cells[0].version if cells else 0
        after = step(before, Tick(), now)
        for signal in heard:
            after = step(after, signal, now)
        if after != before:
            permits = after.permits(0)
            regulations = [Regulation(subject="dependency", name=dependency, permits=permits)]
            if permits == before.permits(0):
                regulations = []
            cell = await self._store.swap(key, version, _encode(after), regulations, now)
            if cell is None:
                return False
        self._gates[dependency] = after
        return True

    async def _wait_for_news(self) -> None:
        """Wait until something is heard, or a held gate is due for a probe."""
        probe_at = self.next_probe_at()
        delay = None if probe_at is None else max(0.0, (probe_at - self._clock.now()) / 1_000)
        try:
            async with asyncio.timeout(delay):
                await self._news.wait()
        except TimeoutError:
            self._urgent = True

    def _take(self, cell: Cell) -> None:
        if self._versions.get(cell.key) != cell.version:
            gate = _decode(cell.value)
            self._versions[cell.key] = cell.version
            self._gates[gate.dependency] = gate
            # A probe may be due earlier than whoever waits for news knows.
            self._news.set()


def _is_well(gate: Gate) -> bool:
    return gate.mode == "open" and gate.evidence == 0 and gate.failing < CALM


def _merge(signals: list[Signal]) -> list[Signal]:
    """Put calls together: one signal for all of them, and the push-backs as they are."""
    calls = [signal for signal in signals if isinstance(signal, Calls)]
    others: list[Signal] = [signal for signal in signals if isinstance(signal, PushBack)]
    if not calls:
        return others
    failed = tuple(dict.fromkeys(name for call in calls for name in call.failed))[:WITNESSES]
    merged = Calls(
        oks=sum(call.oks for call in calls),
        fails=sum(call.fails for call in calls),
        under_way=calls[-1].under_way,
        failed=failed,
    )
    return [merged, *others]
