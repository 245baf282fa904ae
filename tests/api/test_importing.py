"""While an application is imported nothing is enqueued; before and after that, everything is as it always was."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from reprieve import Reprieve, Task
from reprieve.errors import AppImportFailed, AppNotFound, EnqueueDuringImport, InvalidSetting, NoTasks
from reprieve.importing import application, explain
from reprieve.testing import inline
from reprieve.worker.target import import_application, load, require_tasks


@pytest.fixture
def app() -> Iterator[Reprieve]:
    with Reprieve("sqlite://:memory:") as app:
        yield app


@pytest.fixture
def send(app: Reprieve) -> Task[[int], None]:
    @app.task(name="send")
    def send(user: int) -> None: ...

    return send


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that modules are imported from, and that is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_enqueue_is_refused_until_the_outermost_import_has_ended(send: Task[[int], None]) -> None:
    with application():
        with application():
            pass
        with pytest.raises(EnqueueDuringImport) as refused:
            send.enqueue(1)
    assert refused.value.code == "enqueue_during_import"
    assert send.enqueue(1).is_new


def test_enqueue_is_allowed_again_after_an_import_that_failed(send: Task[[int], None]) -> None:
    with suppress(ZeroDivisionError), application():
        raise ZeroDivisionError
    assert send.enqueue(1).is_new


def test_every_way_to_enqueue_is_refused_and_stores_nothing(app: Reprieve, send: Task[[int], None]) -> None:
    with application():
        ways: list[Callable[[], object]] = [
            lambda: send.enqueue(1),
            lambda: app.enqueue(send.call(1)),
            lambda: app.enqueue_many([]),
        ]
        for enqueue in ways:
            with pytest.raises(EnqueueDuringImport):
                enqueue()
        for coroutine in (send.aenqueue(1), app.aenqueue(send.call(1)), app.aenqueue_many([send.call(1)])):
            with pytest.raises(EnqueueDuringImport):
                asyncio.run(coroutine)
        assert send.using(tenant="acme").call(1).terms.model.tenant == "acme"


def test_jobs_run_inline_as_ever(app: Reprieve) -> None:
    ran: list[int] = []

    @app.task(name="note")
    def note(user: int) -> None:
        ran.append(user)

    with inline(app):
        note.enqueue(1)
    assert ran == [1]


def test_error_of_an_application_is_the_cause_of_ours(folder: Path) -> None:
    (folder / "failing_module.py").write_text("import os\n\n1 / 0\n")
    with pytest.raises(AppImportFailed, match=r"failing_module\.py:3 `1 / 0`: ZeroDivisionError: division") as failed:
        import_application("failing_module")
    assert isinstance(failed.value.__cause__, ZeroDivisionError)


def test_setting_that_cannot_be_used_is_no_fault_of_the_module(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "configured_module.py").write_text("from reprieve import Reprieve\n\napp = Reprieve()\n")
    monkeypatch.setenv("REPRIEVE_SLOTS", "many")
    with pytest.raises(InvalidSetting, match="REPRIEVE_SLOTS"):
        load("configured_module:app")


def test_app_without_tasks_is_refused_where_it_would_run_nothing(app: Reprieve, send: Task[[int], None]) -> None:
    require_tasks(app, "shop:app")
    with pytest.raises(NoTasks, match="shop:app has no tasks"):
        require_tasks(Reprieve("sqlite://:memory:"), "shop:app")
    assert send.name == "send"


def test_module_that_is_not_there_is_told_from_one_that_it_imports(folder: Path) -> None:
    (folder / "importing_module.py").write_text("import nowhere\n")
    with pytest.raises(AppNotFound, match="there is no module 'nowhere' here"):
        load("nowhere:app")
    with pytest.raises(AppImportFailed, match=r"importing_module\.py:1 `import nowhere`: ModuleNotFoundError"):
        load("importing_module:app")


def test_error_without_a_line_of_the_users_is_told_by_itself() -> None:
    assert explain(ValueError("what happened")) == "ValueError: what happened"
    assert explain(KeyError()) == "KeyError"
