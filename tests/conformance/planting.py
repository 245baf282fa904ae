"""Planting: copies of a store with a bug in each, and whether the suite lets them pass.

A bug is a replacement of text that stands in the store exactly once. When the store has changed so that it no longer
does, plant the same bug anew.
"""

import asyncio
import importlib
import shutil
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TypeAlias
from uuid import uuid4

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

import reprieve
from reprieve.stores.protocol import Store
from reprieve.testing.conformance import CHECKS
from reprieve.testing.conformance.machine import make_machine

PACKAGE = Path(next(iter(reprieve.__path__)))


@dataclass(frozen=True)
class Bug:
    name: str
    file: str
    old: str
    new: str
    found_by: str


Opened: TypeAlias = Callable[[], Awaitable[Store]]
Copy: TypeAlias = Callable[[Bug | None], Opened]


@contextmanager
def copies(
    folder: Path, kind: str, open_one: Callable[[ModuleType], Store], shared: Sequence[str] = ()
) -> Iterator[Copy]:
    """Make copies of a store, with and without a bug, and forget them afterwards.

    What the store shares with others can be copied with it, so that bugs can be planted there: modules by their
    paths below `reprieve`, which they keep in the copy.
    """
    made: list[str] = []
    sys.path.insert(0, str(folder))
    sys.dont_write_bytecode, before = True, sys.dont_write_bytecode

    def make(bug: Bug | None) -> Opened:
        name = f"planted_{kind}_{len(made)}_{uuid4().hex[:8]}"
        made.append(name)
        _copy(folder / name, kind, shared, bug)
        importlib.invalidate_caches()
        planted = importlib.import_module(name)

        async def opened() -> Store:
            return open_one(planted)

        return opened

    yield make
    sys.dont_write_bytecode = before
    sys.path.remove(str(folder))
    for module in [module for module in sys.modules if module.partition(".")[0] in made]:
        del sys.modules[module]


def _copy(folder: Path, kind: str, shared: Sequence[str], bug: Bug | None) -> None:
    shutil.copytree(PACKAGE / "stores" / kind, folder, ignore=shutil.ignore_patterns("__pycache__"))
    for module in shared:
        (folder / module).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(PACKAGE / module, folder / module)
    if bug is not None:
        text = (folder / bug.file).read_text("utf-8")
        found = text.count(bug.old)
        assert found == 1, f"{bug.file} has {bug.old!r} {found} times; plant the bug anew"
        (folder / bug.file).write_text(text.replace(bug.old, bug.new), "utf-8")
    for file in folder.rglob("*.py"):
        text = file.read_text("utf-8").replace(f"reprieve.stores.{kind}", folder.name)
        for module in shared:
            name = module.removesuffix(".py").replace("/", ".")
            text = text.replace(f"reprieve.{name} ", f"{folder.name}.{name} ")
        file.write_text(text, "utf-8")


def survives(opened: Opened, name: str) -> bool:
    """Whether a check lets a store pass."""

    async def check() -> None:
        store = await opened()
        try:
            await CHECKS[name](store)
        finally:
            await store.close()

    try:
        asyncio.run(check())
    except Exception:  # noqa: BLE001 - a bug may also break the store outright
        return False
    return True


def survives_histories(opened: Opened, histories: int) -> bool:
    """Whether so many histories let a store pass."""
    try:
        run_state_machine_as_test(
            seed(0)(make_machine(opened)),
            settings=settings(
                max_examples=histories,
                stateful_step_count=50,
                phases=[Phase.generate],
                database=None,
                report_multiple_bugs=False,
                suppress_health_check=list(HealthCheck),
            ),
        )
    except Exception:  # noqa: BLE001 - as above
        return False
    return True
