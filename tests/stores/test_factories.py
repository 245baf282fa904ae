"""Stores of other packages: found by their entry points, named when they are broken, and checked like our own."""

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from reprieve import Reprieve
from reprieve.errors import BrokenPlugin, InvalidUrl, PayloadTooLarge
from reprieve.stores.capabilities import Immediate, Transactional
from reprieve.stores.open import diagnostics_for, open_outbox, open_store
from reprieve.testing.conformance import CHECKS
from reprieve.testing.conformance.stage import START, new_job

STORE = '''
from contextlib import nullcontext

from reprieve.stores.factories import OpenOptions
from reprieve.stores.forwarding import ForwardingStore
from reprieve.stores.sqlite import SqliteStore


class TinyStore(ForwardingStore):
    """Keeps jobs in memory, and neither checks nor combines anything."""

    def __init__(self, url: str, options: OpenOptions) -> None:
        super().__init__(SqliteStore(None))
        self.opened_with = url, options

    def _call(self, operation: str) -> nullcontext[None]:
        return nullcontext()


def open_store(url: str, options: OpenOptions) -> TinyStore:
    return TinyStore(url, options)
'''


class Site:
    """A folder of installed distributions."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def install(self, name: str, entry_points: str, **modules: str) -> None:
        info = self.folder / f"{name.replace('-', '_')}-1.2.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n", "utf-8")
        (info / "entry_points.txt").write_text(entry_points, "utf-8")
        for module, source in modules.items():
            (self.folder / f"{module}.py").write_text(source, "utf-8")
        importlib.invalidate_caches()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "tiny", raising=False)
    return Site(tmp_path)


@pytest.fixture
def tiny(site: Site) -> Site:
    site.install("tiny-store", "[reprieve.stores]\ntiny = tiny:open_store\n", tiny=STORE)
    return site


@pytest.mark.parametrize("name", CHECKS)
async def test_store_of_another_package_passes_the_conformance_checks(tiny: Site, name: str) -> None:
    store = open_store("tiny://anywhere")
    try:
        await CHECKS[name](store)
    finally:
        await store.close()


async def test_store_of_another_package_is_opened_with_its_url_and_options_and_checked(tiny: Site) -> None:
    store = open_store("tiny://host/name?x=1", durability="fast", largest_payload=10, shared=True, may_wait=False)
    url, options = store.inner.opened_with  # type: ignore[attr-defined] # the store of the package
    assert url == "tiny://host/name?x=1"
    assert (options.durability, options.shared, options.must_exist, options.may_wait) == ("fast", True, False, False)
    with pytest.raises(PayloadTooLarge, match="11 bytes, and the store takes 10"):
        await store.enqueue([new_job(store, payload=b"x" * 11)], START)
    assert not isinstance(store, Immediate | Transactional)
    await store.close()


def test_app_runs_on_a_store_of_another_package(tiny: Site) -> None:
    with Reprieve("tiny://anywhere") as app:
        receipt = app.task(name="tests.tiny")(lambda: None).enqueue()
        assert app.job(receipt.id).fetch().task == "tests.tiny"


def test_unknown_scheme_lists_what_is_known_and_what_to_install(tiny: Site) -> None:
    with pytest.raises(InvalidUrl) as refusal:
        open_store("oracle://ana:secret@host/jobs")
    assert str(refusal.value) == (
        "no store for 'oracle://ana:***@host/jobs'; write sqlite:///jobs.db, sqlite://:memory:, "
        "postgresql://user:password@host/database (pip install 'reprieve[postgres]'), "
        "redis://host:6379/0 (pip install 'reprieve[redis]'), tiny://, "
        "or install a package with an entry point oracle in the group reprieve.stores"
    )


@pytest.mark.parametrize(
    ("modules", "reason"),
    [
        ({}, "ModuleNotFoundError: No module named 'tiny'"),
        ({"tiny": "import not_installed"}, "ModuleNotFoundError: No module named 'not_installed'"),
        ({"tiny": "open_stores = None"}, "AttributeError: module 'tiny' has no attribute 'open_store'"),
        ({"tiny": "1 / 0"}, "ZeroDivisionError: division by zero"),
    ],
    ids=["no module", "no requirement", "no function", "an error"],
)
def test_entry_point_that_cannot_be_loaded_is_named(site: Site, modules: dict[str, str], reason: str) -> None:
    site.install("tiny-store", "[reprieve.stores]\ntiny = tiny:open_store\n", **modules)
    with pytest.raises(BrokenPlugin) as refusal:
        open_store("tiny://anywhere")
    assert str(refusal.value) == (
        f"the entry point tiny = tiny:open_store of the package tiny-store 1.2 cannot be loaded: {reason}; "
        "repair or remove its package"
    )


def test_scheme_that_two_packages_register_names_both(tiny: Site) -> None:
    tiny.install("other-store", "[reprieve.stores]\ntiny = other:open_store\n")
    with pytest.raises(BrokenPlugin, match=r"several packages register tiny://: .*") as refusal:
        open_store("tiny://anywhere")
    assert "tiny = tiny:open_store of the package tiny-store 1.2" in str(refusal.value)
    assert "tiny = other:open_store of the package other-store 1.2" in str(refusal.value)


async def test_package_cannot_take_a_scheme_of_ours(site: Site) -> None:
    site.install("taker", "[reprieve.stores]\nsqlite = tiny:open_store\n", tiny=STORE)
    store = open_store("sqlite://:memory:")
    assert isinstance(store, Immediate)
    await store.close()


def test_outboxes_and_diagnostics_are_registered_in_groups_of_their_own(site: Site) -> None:
    source = "def open_outbox(url, options):\n    return url, options\n"
    site.install(
        "tiny-store",
        "[reprieve.outboxes]\ntiny = tiny:open_outbox\n[reprieve.diagnostics]\ntiny = tiny:open_outbox\n",
        tiny=source,
    )
    outbox: Any = open_outbox("tiny://outbox", largest_payload=5)
    assert (outbox[0], outbox[1].largest_payload) == ("tiny://outbox", 5)
    care: Any = diagnostics_for("tiny://care", shared=True)
    assert (care[0], care[1].shared) == ("tiny://care", True)
    with pytest.raises(InvalidUrl, match=r"in the group reprieve\.stores"):
        open_store("tiny://anywhere")


@pytest.mark.parametrize(
    "url",
    ["redis//:hunter2@h", "host=h password=hunter2", "postgres:hunter2@h", "a:hunter2://h", "sqlite://bob:hunter2@h"],
)
def test_url_with_a_typo_is_refused_without_its_password(url: str) -> None:
    for opening in (open_store, diagnostics_for, open_outbox):
        with pytest.raises(InvalidUrl) as refused:
            opening(url)
        assert "hunter2" not in str(refused.value)
