"""The gates, as one worker process sees them, and how the fleet agrees on them.

Each process hears the results of its own calls and steps its own copy of a gate at once, so that an outage stops it
within its next few calls. What it heard is shared through an entry of the store, with the permits that the claim
honours, in one write: the fleet's gate is the one in the entry. A hold that only this process knows of is unconfirmed:
nothing starts behind it, and nothing is given back either, until the fleet's gate has been asked. Successes of a
dependency that is well are not worth telling, nor is its entry worth keeping: no entry is a gate that is open. Where
anybody sees failures, all tell their successes: a process that is broken itself must not speak for the fleet.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from operator import itemgetter

import msgspec
from msgspec.structs import replace

from reprieve.clock import Clock
from reprieve.core.gate import Calls, Gate, Mode, Tick, signal_of
from reprieve.core.job import Job
from reprieve.core.verdict import Verdict
from reprieve.errors import StoreError
from reprieve.stores.protocol import Entry, LimitUpdate, Store
from reprieve.worker.view import Sent, View, follow, is_well, merge

PREFIX = "gate:"
"""What the keys of gates begin with."""

SHARE_EVERY = 0.1
"""Seconds between two writes of a gate that is open."""

AT_ONCE = 8
"""Gates that are written at once, at the most."""

MAX_ANSWERS = 10_000
"""Dependencies of which it is remembered when they last answered; half of them are forgotten when there are more."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Gate).decode


class Gates:
    """Every gate that this process has to do with."""

    def __init__(self, store: Store, clock: Clock, under_way: Callable[[str], int]) -> None:
        """Take where gates are shared, and what knows how many calls of a dependency are under way here."""
        self._store = store
        self._clock = clock
        self._under_way = under_way
        self._views: dict[str, View] = {}
        self._unconfirmed: set[str] = set()
        self._deleted: set[str] = set()
        """Whose entries were deleted here since the last reading began: it may still have seen them."""
        self._answered: dict[str, int] = {}
        """When the latest call of a dependency that succeeded began, here or as other processes say."""
        self._news = asyncio.Event()
        self._urgent = asyncio.Event()
        self.when_settled: Callable[[], None] = lambda: None
        """Called when a hold was confirmed or refuted, or the fleet's gate has another mode."""

    @property
    def has_unconfirmed(self) -> bool:
        """Whether any hold is unconfirmed: what is fetched now may have to be given back."""
        return bool(self._unconfirmed)

    def of(self, dependency: str) -> Gate | None:
        """Return the gate of a dependency; a job without one has nobody else to blame."""
        if not dependency:
            return None
        view, answered_at = self._views.get(dependency), self._answered.get(dependency)
        if view is None:
            return Gate(dependency=dependency, answered_at=answered_at)
        return view.gate if view.gate.answered_at == answered_at else replace(view.gate, answered_at=answered_at)

    def is_held(self, dependency: str) -> bool:
        """Whether nothing may start, as everybody knows: what was fetched before is better given back."""
        view = self._views.get(dependency)
        return view is not None and view.gate.mode == "held" and not view.is_unconfirmed

    def is_unconfirmed(self, dependency: str) -> bool:
        """Whether nothing may start before the fleet has been asked."""
        return dependency in self._unconfirmed

    def hear(self, job: Job, verdict: Verdict | None) -> None:
        """Hear how a call ended; no verdict is a success."""
        if not job.dependency:
            return
        now, began_at = self._clock.now(), job.leased_at or 0
        if verdict is None:
            self._note_answer(job.dependency, began_at)
            if self._is_well(job.dependency, now):
                return
        known = self._views.get(job.dependency)
        if known is not None and known.gate.mode != "open" and began_at < known.gate.since_at:
            # It began before the gate was held, and says nothing about how things are now.
            return
        signal = signal_of(job.id, verdict, now)
        if signal is None:
            return
        if isinstance(signal, Calls):
            answered_at = began_at if verdict is None else None
            signal = replace(signal, under_way=self._under_way(job.dependency), answered_at=answered_at)
        view = self._view(job.dependency)
        view.hear(signal, now)
        if view.is_unconfirmed:
            self._unconfirmed.add(job.dependency)
        if view.gate.mode != "open":
            self._urgent.set()
        self._news.set()

    async def refresh(self) -> None:
        """Read what the fleet agrees on."""
        self._deleted.clear()
        missing = {name: view.version for name, view in self._views.items() if view.version}
        for entry in await self._store.entries(PREFIX):
            dependency = entry.key.removeprefix(PREFIX)
            missing.pop(dependency, None)
            if dependency not in self._deleted:
                self._take(dependency, entry)
        now = self._clock.now()
        for dependency, version in missing.items():
            view = self._views.get(dependency)
            # One that was written here meanwhile is not missing, only new.
            if view is not None and view.version == version:
                if not (view.heard or view.is_idle(now)):
                    # Another process deleted the entry because calls succeed again.
                    self._note_answer(dependency, now)
                self._lose(view, version)
        self._forget_old_answers()
        if any(view.is_over(now) for view in self._views.values()):
            self._news.set()

    async def keep(self) -> AsyncIterator[None]:
        """Share what is heard, and let probes through when it is time; for as long as the worker lives."""
        while True:
            await self._wait_for_news()
            self._news.clear()
            self._urgent.clear()
            try:
                await self.share_all()
            except BaseException:
                # What could not be told is still news, to whoever begins again.
                self._news.set()
                self._urgent.set()
                raise
            yield

    def next_probe_at(self) -> int | None:
        """Return when the next held gate lets a probe through."""
        gates = (view.gate for view in self._views.values())
        return min((gate.probe_at for gate in gates if gate.probe_at is not None), default=None)

    async def share_all(self) -> None:
        """Write whatever was heard, and what the time brings."""
        now = self._clock.now()
        names = [name for name, view in self._views.items() if view.heard or view.is_due(now) or view.is_over(now)]
        turns = asyncio.Semaphore(AT_ONCE)

        async def share(dependency: str) -> None:
            async with turns:
                await self.share(dependency)

        # One that fails does not keep the others from being written.
        for answer in await asyncio.gather(*map(share, names), return_exceptions=True):
            if answer is not None:
                raise answer

    async def share(self, dependency: str) -> None:
        """Write what was heard of one dependency into the fleet's gate, which decides."""
        view = self._view(dependency)
        try:
            while not await self._try_to_share(view):
                pass
        except StoreError:
            raise
        except Exception:
            # It would fail again: nobody should wait for it.
            view.heard.clear()
            self._learn(view, view.fleet, view.version)
            raise

    async def _try_to_share(self, view: View) -> bool:
        dependency, now, known = view.fleet.dependency, self._clock.now(), view.version
        key = PREFIX + dependency
        entry = next((entry for entry in await self._store.entries(key) if entry.key == key), None)
        before = Gate(dependency=dependency) if entry is None else _decode(entry.value)
        version = 0 if entry is None else entry.version
        view.recognise(entry)
        told = len(view.heard)
        after = follow(before, [Tick(), *merge(view.heard)], now)
        value = None if view.is_idle_or_well(after, version, now) else _encode(after)
        is_same = value is None if entry is None else value is not None and after == before
        if not is_same:
            view.sent = Sent(version, value, told)
            answer = await self._store.compare_and_set(key, version, value, _limit_updates(before, after), now)
            view.sent = None
            if answer is None:
                return False
            entry = answer
        if after.answered_at is not None:
            self._note_answer(dependency, after.answered_at)
        # More may have been heard meanwhile.
        del view.heard[:told]
        if value is None or entry is None:
            self._deleted.add(dependency)
            self._lose(view, max(version, known))
        else:
            self._learn(view, after, entry.version)
        return True

    async def _wait_for_news(self) -> None:
        """Wait until something is heard, or a held gate is due for a probe. What is open can wait for company."""
        probe_at = self.next_probe_at()
        delay = None if probe_at is None else max(0.0, (probe_at - self._clock.now()) / 1_000)
        if await _is_set_within(self._news, delay):
            await _is_set_within(self._urgent, SHARE_EVERY)

    def _is_well(self, dependency: str, now: int) -> bool:
        """Whether a success is no news, here or to anybody else."""
        view = self._views.get(dependency)
        return view is None or (is_well(view.gate, now) and is_well(view.fleet, now))

    def _note_answer(self, dependency: str, at: int) -> None:
        if at > self._answered.get(dependency, 0):
            self._answered[dependency] = at

    def _forget_old_answers(self) -> None:
        if len(self._answered) > MAX_ANSWERS:
            newest = sorted(self._answered.items(), key=itemgetter(1))[-MAX_ANSWERS // 2 :]
            self._answered = dict(newest)

    def _take(self, dependency: str, entry: Entry) -> None:
        view = self._view(dependency)
        if view.version < entry.version:
            gate = _decode(entry.value)
            self._learn(view, gate, entry.version)
            if gate.answered_at is not None:
                self._note_answer(dependency, gate.answered_at)
            # A probe may be due earlier than whoever waits for news knows.
            self._news.set()

    def _learn(self, view: View, gate: Gate, version: int) -> None:
        """Take the fleet's gate."""
        mode = view.fleet.mode
        view.learn(gate, version, self._clock.now())
        self._settle(view, mode)

    def _lose(self, view: View, version: int) -> None:
        """Take it that the fleet has no such gate any more, and so that it is open."""
        mode = view.fleet.mode
        view.lose(version, self._clock.now())
        if not (view.version or view.heard):
            self._views.pop(view.fleet.dependency, None)
        self._settle(view, mode)

    def _settle(self, view: View, mode: Mode) -> None:
        """Let those know who wait for the fleet, or rely on a mode that it no longer has."""
        dependency = view.fleet.dependency
        if view.is_unconfirmed:
            self._unconfirmed.add(dependency)
        elif dependency in self._unconfirmed or view.fleet.mode != mode:
            self._unconfirmed.discard(dependency)
            self.when_settled()

    def _view(self, dependency: str) -> View:
        view = self._views.get(dependency)
        if view is None:
            view = self._views[dependency] = View(dependency, self._clock.now())
        return view


def _limit_updates(before: Gate, after: Gate) -> list[LimitUpdate]:
    """Return what the claim must honour from now on, if that has changed."""
    permits = after.permits(0)
    if permits == before.permits(0):
        return []
    return [LimitUpdate(subject="dependency", name=after.dependency, permits=permits)]


async def _is_set_within(event: asyncio.Event, seconds: float | None) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True
