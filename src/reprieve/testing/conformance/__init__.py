"""The conformance suite: what the store protocol promises, as checks that any store must pass.

Each of `CHECKS` is a sentence and a coroutine function that takes a fresh, empty store and raises AssertionError when
the store breaks its promise. `reprieve.testing.conformance.machine` searches for failing histories.
"""

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType, ModuleType

from reprieve.stores.protocol import Store
from reprieve.testing.conformance import (
    auditing,
    auditing_limits,
    causes,
    claiming,
    enqueueing,
    entry_carrying,
    entry_expiry,
    events,
    excluding,
    expiring,
    failures,
    fairness,
    finding,
    finding_cells,
    finding_pages,
    finding_tried,
    forgetting,
    gates,
    keeping,
    limit_defaults,
    limit_reads,
    limits,
    naming,
    notices,
    operating,
    ordering,
    series,
    session_list,
    sessions,
    settling,
    telling,
    unreadable,
    values,
    waiting,
)

__all__ = ["CHECKS", "Check"]

Check = Callable[[Store], Awaitable[None]]

_MODULES: tuple[ModuleType, ...] = (
    enqueueing,
    claiming,
    ordering,
    excluding,
    settling,
    failures,
    causes,
    values,
    operating,
    auditing,
    auditing_limits,
    sessions,
    session_list,
    expiring,
    gates,
    limits,
    naming,
    limit_defaults,
    limit_reads,
    fairness,
    keeping,
    entry_carrying,
    entry_expiry,
    forgetting,
    finding,
    finding_cells,
    finding_pages,
    finding_tried,
    events,
    telling,
    notices,
    series,
    waiting,
    unreadable,
)

CHECKS: Mapping[str, Check] = MappingProxyType(
    {
        name.removeprefix("check_"): check
        for module in _MODULES
        for name, check in vars(module).items()
        if name.startswith("check_")
    }
)
"""Every check by its sentence, in the order of the protocol."""
