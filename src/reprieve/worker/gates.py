"""The gates, as one worker process sees them, and how the fleet agrees on them.

Each process records the results of its own calls and steps its own copy of a gate at once, so that an outage stops it
within its next few calls. The results are shared through an entry of the store, written together with the permits that
the claim honours: the fleet's gate is the one in the entry (see `stores.gates`). A hold that only this process knows of
is unconfirmed: until the fleet's gate is known, no job starts behind it, and none is given back.

A process does not share the successes of a dependency that is well, and the entry of such a gate is deleted. Where any
process sees failures, all processes share their successes: one broken process must not decide for the fleet.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from operator import itemgetter

from msgspec.structs import replace

from reprieve.clock import Clock
from reprieve.core.audit import Automatic
from reprieve.core.gate import Calls, Gate, Signal, Tick, signal_of
from reprieve.core.job import Job
from reprieve.core.outcome import Outcome, Succeeded
from reprieve.errors import StoreError
from reprieve.stores.gates import GateChanges, StoredGate, read_gate, read_gates, write_gate
from reprieve.stores.protocol import Store
from reprieve.worker.gate_view import GateView, PendingWrite, follow, is_well, merge

SHARE_INTERVAL_SECONDS = 0.1
"""Seconds between two writes of a gate that is open."""

TIDY_INTERVAL_SECONDS = 1.0
"""Seconds between two searches for gates that are not needed any more."""

MAX_CONCURRENT_WRITES = 8
"""Gates that are written at the same time."""

MAX_KNOWN_SUCCESSES = 10_000
"""Dependencies whose last success is remembered; beyond it, the older half is forgotten."""

_GATES = Automatic(by="gates")
"""Who moves a gate here: no person."""


class Gates:
    """Every gate that this process knows."""

    def __init__(self, store: Store, clock: Clock, under_way: Callable[[str], int]) -> None:
        """Share gates through a store; `under_way` returns how many calls of a dependency run in this process."""
        self._store = store
        self._clock = clock
        self._under_way = under_way
        self._views: dict[str, GateView] = {}
        self._unconfirmed: set[str] = set()
        self._cursor = ""
        """Up to which change the fleet's gates were read."""
        self._written: set[str] = set()
        """Dependencies whose entries this process set or deleted since the last read began: what that read returns of
        them may be older."""
        self._tidied_at = 0
        """When gates that are not needed any more were last looked for."""
        self._succeeded_at: dict[str, int] = {}
        """When the latest call of a dependency that succeeded began, in this process or in any other."""
        self._has_news = asyncio.Event()
        self._is_urgent = asyncio.Event()
        self.on_change: Callable[[], None] = lambda: None
        """Called when a hold is confirmed or refuted, or the mode of the fleet's gate changes."""

    @property
    def has_unconfirmed(self) -> bool:
        """Whether any hold is unconfirmed: a job that is fetched now may have to be given back."""
        return bool(self._unconfirmed)

    def of(self, dependency: str) -> Gate | None:
        """Return the gate of a dependency; None for a job without one."""
        if not dependency:
            return None
        view, last_success_at = self._views.get(dependency), self._succeeded_at.get(dependency)
        if view is None:
            return Gate(dependency=dependency, last_success_at=last_success_at)
        return (
            view.gate
            if view.gate.last_success_at == last_success_at
            else replace(view.gate, last_success_at=last_success_at)
        )

    def is_held(self, dependency: str) -> bool:
        """Whether the fleet's gate is held: a job that was fetched before is given back."""
        view = self._views.get(dependency)
        return view is not None and view.gate.mode == "held" and not view.is_unconfirmed

    def is_unconfirmed(self, dependency: str) -> bool:
        """Whether the gate is held here, and no job may start until the fleet's gate is known."""
        return dependency in self._unconfirmed

    def record(self, job: Job, outcome: Outcome) -> None:
        """Record how an attempt of a job ended that called its dependency."""
        now, began_at, is_success = self._clock.now(), job.leased_at or 0, isinstance(outcome, Succeeded)
        if not job.dependency or (signal := signal_of(job.id, outcome, now)) is None:
            return
        if is_success:
            self._note_success(job.dependency, began_at)
        if self._is_no_news(job.dependency, signal, now):
            return
        known = self._views.get(job.dependency)
        if known is not None and known.gate.mode != "open" and began_at < known.gate.since_at:
            # It began before the gate was held, and says nothing about the dependency since.
            return
        if isinstance(signal, Calls):
            last_success_at = began_at if is_success else None
            signal = replace(signal, under_way=self._under_way(job.dependency), last_success_at=last_success_at)
        view = self._view(job.dependency)
        view.record(signal, now)
        if view.is_unconfirmed:
            self._unconfirmed.add(job.dependency)
        if view.gate.mode != "open":
            self._is_urgent.set()
        self._has_news.set()

    def next_probe_at(self) -> int | None:
        """Return when the next held gate lets a probe through."""
        gates = (view.gate for view in self._views.values())
        return min((gate.probe_at for gate in gates if gate.probe_at is not None), default=None)

    # reading what the fleet agrees on

    async def refresh(self) -> None:
        """Read what has changed of the fleet's gates since the last read, or all of them."""
        self._written.clear()
        changes = await read_gates(self._store, self._cursor)
        deleted_here = {name for name in self._written if not self._version(name)}
        if deleted_here.isdisjoint(changes.gates):
            self._cursor = changes.cursor
        # Otherwise the next read begins where this one began: an entry that was deleted here may be older or newer.
        for dependency, stored in changes.gates.items():
            if dependency not in deleted_here and not self._is_newer_here(dependency, changes):
                self._take(dependency, stored, is_whole=changes.is_whole)
        now = self._clock.now()
        for dependency in self._gone(changes):
            self._take_deletion(self._views[dependency], now)
        self._forget_old_successes()
        if now - self._tidied_at >= TIDY_INTERVAL_SECONDS * 1_000:
            self._tidied_at = now
            if any(view.is_over(now) for view in self._views.values()):
                self._has_news.set()

    def _gone(self, changes: GateChanges) -> list[str]:
        """Return the dependencies known here whose entries were deleted."""
        if changes.is_whole:
            known = [name for name, view in self._views.items() if view.version and name not in changes.gates]
            return [name for name in known if not self._is_newer_here(name, changes)]
        return [name for name, version in changes.deleted.items() if 0 < self._version(name) < version]

    def _is_newer_here(self, dependency: str, changes: GateChanges) -> bool:
        """Whether this process wrote a gate after the read of these changes began."""
        return dependency in self._written and self._version(dependency) > changes.version

    def _version(self, dependency: str) -> int:
        view = self._views.get(dependency)
        return 0 if view is None else view.version

    def _take(self, dependency: str, stored: StoredGate, *, is_whole: bool) -> None:
        view = self._view(dependency)
        if view.version < stored.version or (is_whole and view.version != stored.version):
            self._update(view, stored, is_whole=is_whole)
            if stored.gate.last_success_at is not None:
                self._note_success(dependency, stored.gate.last_success_at)
            # A probe may be due earlier than the loop that shares gates has planned for.
            self._has_news.set()

    def _take_deletion(self, view: GateView, now: int) -> None:
        if not (view.unshared or view.is_idle(now)):
            # Another process deleted the entry because calls succeed again.
            self._note_success(view.fleet.dependency, now)
        self._forget(view, view.version)

    # sharing what was recorded here

    async def run(self) -> AsyncIterator[None]:
        """Share what is recorded, and let probes through when they are due, until cancelled."""
        while True:
            await self._wait_for_news()
            self._has_news.clear()
            self._is_urgent.clear()
            try:
                await self.share_all()
            except BaseException:
                # It was not shared: the next run of this loop tries again at once.
                self._has_news.set()
                self._is_urgent.set()
                raise
            yield

    async def share_all(self) -> None:
        """Write every gate that has unshared signals, is due for a probe, or is not needed any more."""
        now = self._clock.now()
        names = [name for name, view in self._views.items() if view.unshared or view.is_due(now) or view.is_over(now)]
        limit = asyncio.Semaphore(MAX_CONCURRENT_WRITES)

        async def share(dependency: str) -> None:
            async with limit:
                await self.share(dependency)

        # One write that fails does not stop the others.
        for error in await asyncio.gather(*map(share, names), return_exceptions=True):
            if error is not None:
                raise error

    async def share(self, dependency: str) -> None:
        """Step the fleet's gate by the unshared signals of this process."""
        view = self._view(dependency)
        try:
            while not await self._try_to_share(view):
                pass
        except StoreError:
            raise
        except Exception:
            # It would fail again, and jobs would wait for it for ever.
            view.unshared.clear()
            self._update(view, StoredGate(view.fleet, view.version))
            raise

    async def _try_to_share(self, view: GateView) -> bool:
        """Write the fleet's gate once; return False if another process was first."""
        dependency, now, known = view.fleet.dependency, self._clock.now(), view.version
        before = await read_gate(self._store, dependency)
        view.resolve_pending(before)
        signals = len(view.unshared)
        after = follow(before.gate, [Tick(), *merge(view.unshared)], now)
        kept = None if view.is_idle_or_well(StoredGate(after, before.version), now) else after
        version = before.version
        if kept != (before.gate if before.version else None):
            view.pending = PendingWrite(before.version, kept, signals)
            written = await write_gate(self._store, before, kept, now, _GATES)
            view.pending = None
            if written is None:
                return False
            version = written
        if after.last_success_at is not None:
            self._note_success(dependency, after.last_success_at)
        # More may have been recorded during the write.
        del view.unshared[:signals]
        self._written.add(dependency)
        if kept is None:
            self._forget(view, max(before.version, known))
        else:
            if view.version == known > before.version:
                # The store was restored from a backup: the version that it gives now may be smaller.
                view.version = before.version
            self._update(view, StoredGate(after, version))
        return True

    async def _wait_for_news(self) -> None:
        """Wait until something is recorded, or a probe is due. Signals of an open gate are shared in batches."""
        probe_at = self.next_probe_at()
        delay = None if probe_at is None else max(0.0, (probe_at - self._clock.now()) / 1_000)
        if await _is_set_within(self._has_news, delay):
            await _is_set_within(self._is_urgent, SHARE_INTERVAL_SECONDS)

    # the views

    def _is_no_news(self, dependency: str, signal: Signal, now: int) -> bool:
        """Whether a signal changes no gate: a success of what is well, or a neutral call behind an open gate."""
        if not isinstance(signal, Calls) or signal.fails:
            return False
        view = self._views.get(dependency)
        if view is None:
            return True
        if signal.neutral:
            return view.gate.mode == view.fleet.mode == "open"
        return is_well(view.gate, now) and is_well(view.fleet, now)

    def _note_success(self, dependency: str, at: int) -> None:
        if at > self._succeeded_at.get(dependency, 0):
            self._succeeded_at[dependency] = at

    def _forget_old_successes(self) -> None:
        if len(self._succeeded_at) > MAX_KNOWN_SUCCESSES:
            newest = sorted(self._succeeded_at.items(), key=itemgetter(1))[-MAX_KNOWN_SUCCESSES // 2 :]
            self._succeeded_at = dict(newest)

    def _update(self, view: GateView, stored: StoredGate, *, is_whole: bool = False) -> None:
        """Take the fleet's gate, also an older version if all gates were read."""
        mode = view.fleet.mode
        (view.replace if is_whole else view.update)(stored, self._clock.now())
        self._report_change(view, mode)

    def _forget(self, view: GateView, version: int) -> None:
        """Take the fleet's gate as open: its entry is gone."""
        mode = view.fleet.mode
        view.forget(version, self._clock.now())
        if not (view.version or view.unshared):
            self._views.pop(view.fleet.dependency, None)
        self._report_change(view, mode)

    def _report_change(self, view: GateView, mode: str) -> None:
        """Call `on_change` if a hold was confirmed or refuted, or the fleet's gate had another mode before."""
        dependency = view.fleet.dependency
        if view.is_unconfirmed:
            self._unconfirmed.add(dependency)
        elif dependency in self._unconfirmed or view.fleet.mode != mode:
            self._unconfirmed.discard(dependency)
            self.on_change()

    def _view(self, dependency: str) -> GateView:
        view = self._views.get(dependency)
        if view is None:
            view = self._views[dependency] = GateView(dependency, self._clock.now())
        return view


async def _is_set_within(event: asyncio.Event, seconds: float | None) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True
