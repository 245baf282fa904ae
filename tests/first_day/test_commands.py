"""One app, one store: what a new user types finds the app and looks at its store, and reading creates nothing."""

from pathlib import Path

import pytest

from tests.first_day.user import User

SHOP = """
from reprieve import Reprieve

app = Reprieve("sqlite:///shop.db")


@app.task
def send_welcome(user_id: int) -> None:
    print(f"welcome, user {user_id}")


@app.task
def send_invoice(number: int) -> None:
    print(f"invoice {number}")
"""

CONFIGURED = {
    "environment": ("", "", {"REPRIEVE_APP": "shop:app"}),
    "reprieve.toml": ("reprieve.toml", 'app = "shop:app"\n', {}),
    "pyproject.toml": ("pyproject.toml", '[project]\nname = "shop"\n\n[tool.reprieve]\napp = "shop:app"\n', {}),
}


def files(user: User) -> list[str]:
    return sorted(path.name for path in user.folder.iterdir() if path.name != "__pycache__")


@pytest.mark.parametrize("way", CONFIGURED)
def test_user_names_the_app_once_and_every_command_looks_at_its_store(user: User, way: str) -> None:
    name, text, environ = CONFIGURED[way]
    user.write("shop.py", SHOP)
    if name:
        user.write(name, text)
    enqueued = user.reprieve("enqueue", "send_welcome", "42", **environ)
    assert enqueued.status == 0, enqueued.stderr
    job = enqueued.stdout.strip()
    with user.running("worker", "--processes", "1", **environ) as worker:
        worker.wait_for("welcome, user 42")
        assert worker.stop() == 0
    shown = user.reprieve("jobs", "show", job[-8:], "--json", **environ).document
    assert (shown["id"], shown["status"], shown["task"]) == (job, "succeeded", "shop.send_welcome")
    listed = user.reprieve("jobs", "list", "--task", "send_welcome", "--quiet", **environ)
    assert listed.stdout.split() == [job]
    assert user.reprieve("migrate", "status", "--json", **environ).document["isCurrent"]
    assert "shop.db" in user.reprieve("doctor", **environ).stdout
    assert user.reprieve("config", "--json", **environ).document["url"]["source"] == "shop:app"
    assert not (user.folder / "reprieve.db").exists()


@pytest.mark.parametrize(
    "words",
    [
        ("jobs", "list"),
        ("jobs", "show", "3f9a2c1e"),
        ("jobs", "tail", "--for", "1s"),
        ("jobs", "retry", "3f9a2c1e", "--reason", "x"),
        ("jobs", "cancel", "3f9a2c1e", "--reason", "x"),
    ],
)
def test_user_who_looks_too_early_is_told_where_nothing_is_and_nothing_is_made(
    user: User, words: tuple[str, ...]
) -> None:
    user.write("shop.py", SHOP)
    done = user.reprieve(*words, "--app", "shop:app")
    assert (done.status, done.stdout) == (3, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: {user.folder / 'shop.db'} does not exist; ")
    assert files(user) == ["shop.py"]


def test_questions_about_an_app_make_no_file(user: User) -> None:
    user.write("shop.py", SHOP)
    for words in (("doctor",), ("migrate", "status"), ("migrate", "sql"), ("config",)):
        assert user.reprieve(*words, "--app", "shop:app").status == 0, words
    assert f"{user.folder / 'shop.db'} does not exist yet" in user.reprieve("doctor", "--app", "shop:app").stdout
    assert files(user) == ["shop.py"]


def test_user_who_mistypes_a_task_is_told_the_nearest(user: User) -> None:
    user.write("shop.py", SHOP)
    done = user.reprieve("enqueue", "shop:app", "send_welcom", "42")
    assert done.status == 3
    assert done.stderr == "error: no task is named 'send_welcom'; did you mean shop.send_welcome?\n"


def test_user_without_an_app_is_told_how_to_name_one(user: User) -> None:
    done = user.reprieve("worker")
    assert done.status == 2
    (line,) = done.stderr.splitlines()
    assert all(way in line for way in ("--app shop:app", "REPRIEVE_APP=shop:app", "[tool.reprieve] in pyproject.toml"))


def test_user_who_mistypes_a_setting_is_told_the_file_and_the_nearest(user: User) -> None:
    user.write("pyproject.toml", '[tool.reprieve]\naap = "shop:app"\n')
    done = user.reprieve("jobs", "list")
    assert (done.status, done.stderr) == (
        2,
        "error: pyproject.toml has an unknown setting 'aap'; did you mean app?\n",
    )


def test_the_store_that_user_names_goes_over_that_of_the_app(user: User) -> None:
    user.write("shop.py", SHOP)
    job = user.reprieve("enqueue", "send_invoice", "7", "--app", "shop:app", "--store", "sqlite:///other.db").stdout
    assert user.reprieve("jobs", "list", "-q", "--store", "sqlite:///other.db").stdout == job
    assert user.reprieve("jobs", "list", "-q", "--app", "shop:app", "--store", "sqlite:///other.db").stdout == job
    assert not Path(user.folder / "shop.db").exists()
