"""Every command finds the app, and looks at the app's store; without one, at the store that is named."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from reprieve import Reprieve
from reprieve.stores.protocol import Filter
from tests.cli import files
from tests.cli.shell import answer, complaint, process, reprieve

APP = """
from reprieve import Reprieve

app = Reprieve("sqlite:///of-the-app.db")

@app.task
def send_welcome(user: int) -> None: ...

@app.task(name="shop.bills.send")
def send_bill() -> None: ...

@app.task(name="shop.news.send")
def send_news() -> None: ...

@app.task(name="mail:flush")
def flush() -> None: ...
"""
NAMES = ("REPRIEVE_APP", "reprieve.toml", "pyproject.toml")


@pytest.fixture(autouse=True)
def _shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    # Each test imports a module of its own: one that was imported stays imported.
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / f"{module(request)}.py").write_text(APP)


def module(request: pytest.FixtureRequest) -> str:
    return f"shop_{abs(hash(request.node.nodeid))}"


@pytest.fixture
def shop(request: pytest.FixtureRequest) -> str:
    """The name of the app."""
    return f"{module(request)}:app"


def configure(where: str, shop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    match where:
        case "REPRIEVE_APP":
            monkeypatch.setenv("REPRIEVE_APP", shop)
        case "reprieve.toml":
            Path(where).write_text(f'app = "{shop}"')
        case _:
            Path(where).write_text(f'[tool.reprieve]\napp = "{shop}"')


def tasks_in(url: str) -> list[str]:
    async def look() -> list[str]:
        async with Reprieve(url) as app:
            return [job.task for job in (await app.store.find(Filter(), app.clock.now())).jobs]

    return asyncio.run(look())


# which app, which store


@pytest.mark.parametrize("where", NAMES)
def test_a_configured_app_says_which_store_is_meant(where: str, shop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(where, shop, monkeypatch)
    job = answer("enqueue", "send_welcome", "42")["id"]
    (listed,) = answer("jobs", "list")["jobs"]
    assert (listed["id"], listed["task"]) == (job, f"{shop[:-4]}.send_welcome")
    assert answer("jobs", "show", job)["payload"] == [[42], {}]
    assert "of-the-app.db, of the app" in reprieve("doctor").stdout
    assert answer("migrate", "status")["url"] == "sqlite:///of-the-app.db"
    assert answer("config")["url"] == {"value": "sqlite:///of-the-app.db", "source": shop}
    assert not Path("reprieve.db").exists()


def test_the_option_names_the_app_for_every_command(shop: str) -> None:
    app = ("--app", shop)
    job = answer("enqueue", "send_welcome", "42", *app)["id"]
    assert [one["id"] for one in answer("jobs", "list", *app)["jobs"]] == [job]
    assert answer("jobs", "show", job, *app)["id"] == job
    assert answer("jobs", "cancel", job, "--reason", "no", *app) == [{"jobId": job, "message": "cancelled"}]
    assert answer("jobs", "retry", job, "--reason", "yes", *app, status=0)[0]["jobId"] == job
    assert job in reprieve("jobs", "tail", "--since", "0", "--for", "0.1", *app).stdout
    assert answer("config", *app)["url"]["source"] == shop
    assert answer("migrate", "up", *app)["url"] == "sqlite:///of-the-app.db"


def test_the_store_that_is_named_goes_over_that_of_the_app(shop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRIEVE_APP", shop)
    assert process("enqueue", "send_welcome", "1", "--store", "sqlite:///ours.db").returncode == 0
    assert len(answer("jobs", "list", "--store", "sqlite:///ours.db")["jobs"]) == 1
    assert len(answer("jobs", "list", "--store", "sqlite:///ours.db", "--app", shop)["jobs"]) == 1
    assert "of-the-app.db does not exist" in complaint("jobs", "list", status=3)


def test_a_store_that_is_named_needs_no_app(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRIEVE_APP", "no_such_module:app")
    files.sound(Path("ours.db"))
    assert answer("jobs", "list", "--store", "sqlite:///ours.db")["jobs"] == []
    assert "no_such_module" in complaint("jobs", "list", status=2)


def test_settings_are_shown_also_when_the_configured_app_cannot_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRIEVE_APP", "no_such_module:app")
    result = reprieve("config")
    assert "no_such_module:app" in result.stdout
    assert "the settings in the code of no_such_module:app are not shown" in result.stderr


@pytest.mark.parametrize("words", [("worker",), ("relay",), ("enqueue", "send_welcome")])
def test_without_an_app_the_three_ways_to_name_one_are_told(words: tuple[str, ...]) -> None:
    line = complaint(*words, status=2)
    assert all(way in line for way in ("--app shop:app", "REPRIEVE_APP=shop:app", "reprieve.toml", "pyproject.toml"))


@pytest.mark.parametrize("words", [("worker", "a:b"), ("relay", "a:b")])
def test_two_names_for_the_app_are_refused(words: tuple[str, ...]) -> None:
    assert "the app is given twice" in complaint(*words, "--app", "c:d", status=2)


def test_two_names_for_the_store_are_refused() -> None:
    line = complaint("migrate", "status", "sqlite:///a.db", "--store", "sqlite:///b.db", status=2)
    assert "the store is given twice" in line


# the grammar of enqueue, and short names


def test_a_first_word_with_a_colon_is_the_app_unless_it_is_given(shop: str) -> None:
    reprieve("enqueue", shop, "send_welcome", "1")
    reprieve("enqueue", "mail:flush", "--app", shop)
    assert tasks_in("sqlite:///of-the-app.db") == [f"{shop[:-4]}.send_welcome", "mail:flush"]
    assert "Missing argument 'TASK'" in complaint("enqueue", shop, status=2)


def test_a_short_name_that_fits_two_tasks_is_refused_with_both(shop: str) -> None:
    line = complaint("enqueue", "send", "--app", shop, status=2)
    assert "2 tasks end with 'send': shop.bills.send, shop.news.send; give more of the name" in line
    reprieve("enqueue", "news.send", "--app", shop)
    assert tasks_in("sqlite:///of-the-app.db") == ["shop.news.send"]


def test_an_unknown_task_is_answered_with_the_nearest_and_status_3(shop: str) -> None:
    assert complaint("enqueue", "send_welcme", "--app", shop, status=3).endswith("send_welcome?")
    assert complaint("enqueue", "elcome", "--app", shop, status=3).endswith("send_welcome?")
    reprieve("enqueue", "news.send", "--app", shop)
    assert "did you mean" in complaint("jobs", "list", "--task", "send_welcme", "--app", shop, status=3)


def test_filters_take_short_names_of_the_app_and_of_jobs_that_are_stored(shop: str) -> None:
    reprieve("enqueue", "send_welcome", "1", "--app", shop)
    reprieve("enqueue", "news.send", "--app", shop)
    store = ("--store", "sqlite:///of-the-app.db")
    assert len(answer("jobs", "list", "--task", "send_welcome", "--app", shop)["jobs"]) == 1
    assert answer("jobs", "list", "--task", "bills.send", "--app", shop)["jobs"] == []
    assert len(answer("jobs", "list", "--task", "send_welcome", *store)["jobs"]) == 1
    assert len(answer("jobs", "list", "--task", "send", *store)["jobs"]) == 1
    assert "the tasks are" in complaint("jobs", "list", "--task", "xyz", *store, status=3)


# reading creates nothing


READERS = [
    ("jobs", "list"),
    ("jobs", "show", "3f9a2c1e"),
    ("jobs", "tail", "--for", "0.1"),
    ("jobs", "retry", "3f9a2c1e", "--reason", "x"),
    ("jobs", "cancel", "3f9a2c1e", "--reason", "x"),
]


@pytest.mark.parametrize("words", READERS)
def test_reading_a_store_that_does_not_exist_creates_nothing(words: tuple[str, ...], tmp_path: Path) -> None:
    before = sorted(tmp_path.iterdir())
    line = complaint(*words, "--store", "sqlite:///sub.db", status=3)
    assert str(tmp_path / "sub.db") in line
    assert "does not exist" in line
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("words", READERS)
def test_who_names_neither_app_nor_store_is_told_to_name_the_app(words: tuple[str, ...], tmp_path: Path) -> None:
    line = complaint(*words, status=3)
    assert line.startswith(f"error: {tmp_path / 'reprieve.db'} does not exist, the default store; name the app")
    assert "name the app (--app shop:app, " in line


@pytest.mark.parametrize("words", [("doctor",), ("migrate", "status"), ("migrate", "sql"), ("config",)])
def test_questions_about_a_store_create_none(words: tuple[str, ...], tmp_path: Path) -> None:
    before = sorted(tmp_path.iterdir())
    reprieve(*words)
    assert sorted(tmp_path.iterdir()) == before


def test_reading_leaves_the_database_of_an_application_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files.foreign(tmp_path / "app.db")
    monkeypatch.setenv("REPRIEVE_SHARED", "true")
    assert "app.db holds no jobs yet" in complaint("jobs", "list", "--store", "sqlite:///app.db", status=3)
    with closing(sqlite3.connect(tmp_path / "app.db")) as connection:
        assert connection.execute("select name from sqlite_master").fetchall() == [("orders",)]


def test_jobs_in_the_memory_of_another_process_are_not_looked_for() -> None:
    line = complaint("jobs", "list", "--store", "sqlite://:memory:", status=3)
    assert "exists only in the process that opened it" in line


def test_a_configured_app_is_all_that_a_worker_needs(shop: str, tmp_path: Path) -> None:
    (tmp_path / "reprieve.toml").write_text(f'app = "{shop}"')
    (tmp_path / f"{shop[:-4]}.py").write_text("raise SystemExit(7)")
    assert "SystemExit: 7" in process("worker").stderr


# headers


TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def enqueued_with(shop: str, *words: str) -> dict[str, object]:
    job = answer("enqueue", "send_welcome", "1", "--app", shop, *words)["id"]
    shown: dict[str, object] = answer("jobs", "show", job, "--app", shop)
    return shown


def test_headers_can_be_said_on_the_command_line(shop: str) -> None:
    words = ("--tag", "nightly", "--tag", "eu", "--header", "origin=a=b", "--user", "ana", "--sla", "1m")
    shown = enqueued_with(shop, *words)
    headers = shown["headers"]
    assert isinstance(headers, dict)
    assert (headers["tags"], headers["own"], headers["user"]) == (["nightly", "eu"], {"origin": "a=b"}, "ana")
    assert headers["slaAt"] == int(str(shown["createdAt"])) + 60_000


def test_a_command_takes_the_trace_of_its_environment(shop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEPARENT", TRACE)
    monkeypatch.setenv("TRACESTATE", "vendor=1")
    headers = enqueued_with(shop)["headers"]
    assert isinstance(headers, dict)
    assert (headers["traceparent"], headers["tracestate"], headers["tags"]) == (TRACE, "vendor=1", [])


def test_a_malformed_trace_of_the_environment_is_dropped(shop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEPARENT", "00-nonsense")
    assert enqueued_with(shop)["headers"] is None


def test_a_bad_header_on_the_command_line_is_refused_in_one_line(shop: str) -> None:
    for words, said in (
        (("--header", "origin"), "--header must have the form name=value, got 'origin'"),
        (("--header", "Origin=x"), "names in option headers of a job must be 1–64 of the characters"),
        (("--tag", "a\tb"), "each of option tags of a job must be 1–64 printable characters"),
        (("--user", "x" * 257), "option user of a job must be 0–256 printable characters"),
    ):
        assert said in complaint("enqueue", "send_welcome", "1", "--app", shop, *words, status=2)
