"""What a new user may get wrong: each mistake is told in one line, at once, in the user's own terms."""

import pytest

from tests.first_day.user import User
from tests.servers import redis as redis_servers
from tests.servers.ports import free_port

SHOP = """\
from reprieve import Reprieve

app = Reprieve("sqlite:///jobs.db")


@app.task(queue="mail", executor={executor!r})
def send_welcome(user_id: int, *, template: str = "hello") -> None:
    print(f"sent {{template}} to user {{user_id}}")


if __name__ == "__main__":
    send_welcome.enqueue(42)
    print(send_welcome.name)
"""


def shop(executor: str = "thread") -> str:
    return SHOP.format(executor=executor)


def error_of(user: User, *words: str, status: int, **environ: str) -> str:
    """Run a command that must fail; return its one line."""
    done = user.reprieve(*words, **environ)
    assert (done.status, done.stdout) == (status, ""), done
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    return line.removeprefix("error: ")


# the names of tasks


@pytest.mark.parametrize(
    ("file", "command", "name"),
    [
        ("shop.py", ["shop.py"], "shop.send_welcome"),
        ("shop.py", ["-m", "shop"], "shop.send_welcome"),
        ("my-shop.py", ["my-shop.py"], "my-shop.send_welcome"),
        ("plain/shop.py", ["plain/shop.py"], "shop.send_welcome"),
        ("package/shop.py", ["package/shop.py"], "package.shop.send_welcome"),
        ("package/shop.py", ["-m", "package.shop"], "package.shop.send_welcome"),
        ("package/__main__.py", ["-m", "package"], "package.__main__.send_welcome"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_task_of_a_script_has_the_importable_name_of_its_file(
    user: User, file: str, command: list[str], name: str
) -> None:
    user.write(file, shop())
    if file.startswith("package/"):
        user.write("package/__init__.py", "")
    done = user.python(*command)
    assert done.stdout == f"{name}\n", done.stderr


@pytest.mark.parametrize("executor", ["thread", "process"])
def test_worker_runs_the_job_of_a_script(user: User, executor: str) -> None:
    user.write("shop.py", shop(executor))
    assert user.python("shop.py").status == 0
    with user.running("worker", "shop:app", "--processes", "1") as worker:
        worker.wait_for("sent hello to user 42")
        assert worker.stop() == 0
        assert worker.output.count("sent hello to user 42") == 1


def test_script_that_is_imported_again_declares_its_task_once(user: User) -> None:
    user.write("jobs.py", 'from reprieve import Reprieve\napp = Reprieve("sqlite:///jobs.db")\n')
    text = shop().replace(
        'from reprieve import Reprieve\n\napp = Reprieve("sqlite:///jobs.db")', "from jobs import app"
    )
    user.write("shop.py", f"{text}    import shop\n    print([task.name for task in app.registry])\n")
    done = user.python("shop.py")
    assert done.stdout == "shop.send_welcome\n['shop.send_welcome']\n", done.stderr


def test_task_has_the_same_name_in_processes_that_its_script_starts(user: User) -> None:
    function = "def name_of():\n    return send_welcome.name\n\n\n"
    main = """
    import multiprocessing

    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.apply(name_of))
"""
    user.write("shop.py", shop().replace("if __name__", f"{function}if __name__") + main)
    done = user.python("shop.py")
    assert done.stdout == "shop.send_welcome\nshop.send_welcome\n", done.stderr


def test_task_that_no_worker_can_import_is_not_enqueued(user: User) -> None:
    user.write("shop.v2.py", shop())
    for words, where in ((["-c", shop()], "code without a file"), (["shop.v2.py"], "shop.v2.py")):
        done = user.python(*words)
        assert done.status == 1
        assert f"TaskNotImportable: task __main__.send_welcome is defined in {where}" in done.stderr
        assert '@app.task(name="send_welcome")' in done.stderr
    assert not (user.folder / "jobs.db").exists()


def test_task_with_a_name_is_enqueued_from_anywhere(user: User) -> None:
    done = user.python("-c", shop().replace('queue="mail"', 'name="send_welcome"'))
    assert done.stdout == "send_welcome\n", done.stderr


# enqueueing while the application is imported

ASYNC = "import asyncio\nasync def seed():\n    await {}\nasyncio.run(seed())"
AT_ONCE = [
    "send_welcome.enqueue(42)",
    "app.enqueue_many([send_welcome.call(42)])",
    "def seed():\n    send_welcome.enqueue(42)\nseed()",
    ASYNC.format("send_welcome.aenqueue(42)"),
    ASYNC.format("app.aenqueue_many([send_welcome.call(42)])"),
]
"""Code whose last line enqueues a job."""


@pytest.mark.parametrize("code", AT_ONCE)
@pytest.mark.parametrize(
    "command",
    [["worker", "shop:app"], ["enqueue", "shop:app", "shop.send_welcome", "1"], ["relay", "shop:app"]],
    ids=lambda command: command[0],
)
def test_enqueue_while_the_application_is_imported_is_refused_with_its_line(
    user: User, command: list[str], code: str
) -> None:
    text = f"{shop().partition('if __name__')[0]}{code}\n"
    user.write("shop.py", text)
    lines = text.splitlines()
    assert error_of(user, *command, status=1) == (
        f"shop.py:{len(lines)} `{lines[-1]}` enqueues a job while the application is imported, and would do so again "
        'in every process of a worker; move the line under if __name__ == "__main__": or into a function'
    )
    assert not (user.folder / "jobs.db").exists()


def test_enqueue_in_a_thread_is_refused_while_the_application_is_imported(user: User) -> None:
    code = "import threading\nthread = threading.Thread(target=send_welcome.enqueue, args=(42,))\n"
    user.write("shop.py", f"{shop().partition('if __name__')[0]}{code}thread.start()\nthread.join()\n")
    with user.running("worker", "shop:app", "--processes", "1") as worker:
        worker.wait_for("EnqueueDuringImport")
        worker.wait_for("worker started")
        assert worker.stop() == 0
        assert "sent hello" not in worker.output


# arguments


def test_argument_of_the_wrong_type_is_refused_where_it_is_enqueued(user: User) -> None:
    user.write("shop.py", shop())
    expected = "argument user_id of send_welcome must be int, got str"
    done = user.python("-c", "import shop; shop.send_welcome.enqueue('42')")
    assert f"InvalidArgument: {expected}" in done.stderr
    assert error_of(user, "enqueue", "shop:app", "shop.send_welcome", "many", status=2) == expected
    assert user.reprieve("enqueue", "shop:app", "shop.send_welcome", "42", "--with", "template=42").status == 0


def test_task_that_does_not_exist_is_told_with_those_that_do(user: User) -> None:
    user.write("shop.py", shop())
    line = error_of(user, "enqueue", "shop:app", "shop.send_mail", "42", status=3)
    assert line == "no task is named 'shop.send_mail'; did you mean shop.send_welcome?"
    line = error_of(user, "enqueue", "shop:app", "invoice", "42", status=3)
    assert line == "no task is named 'invoice'; the tasks are shop.send_welcome"


# modules and apps


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import os\nimport stripes\n", "shop.py:2 `import stripes`: ModuleNotFoundError: No module named 'stripes'"),
        ("app = = 1\n", "shop.py:1 `app = = 1`: SyntaxError: invalid syntax"),
        (
            "import sys\n\nsys.exit(3)\n",
            "shop.py:3 `sys.exit(3)`: it ends the program (SystemExit: 3); move that under",
        ),
        ('import json\ndef read():\n    json.loads("{")\nread()\n', 'shop.py:3 `json.loads("{")`: JSONDecodeError: '),
        (
            "from reprieve import Reprieve\napp = Reprieve()\n@app.task(max_attempts=2)\ndef send():\n    pass\n",
            "shop.py:3 `@app.task(max_attempts=2)`: InvalidTask: @app.task has no option 'max_attempts' (task ",
        ),
    ],
    ids=["import error", "syntax error", "exit", "error in a library", "option of a policy"],
)
def test_module_that_fails_is_told_with_the_users_own_line(user: User, code: str, expected: str) -> None:
    user.write("shop.py", code)
    assert error_of(user, "worker", "shop:app", status=1).startswith(f"shop cannot be imported: {expected}")


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("shop:", "'shop:' names no app; write module:name, for example shop:app"),
        (":app", "':app' names no app; write module:name, for example shop.jobs:app"),
        ("shop:jobs", "module 'shop' has no 'jobs'; write shop:app"),
        ("shop:send_welcome", "'shop:send_welcome' is a Task, not a Reprieve app; write shop:app"),
        ("shop.py", "there is no module 'shop.py' here; write the module's name and not the file's, as shop:app"),
        ("./shop.py:app", "there is no module './shop.py' here; write the module's name and not the file's, as shop:"),
        (".shop:app", "there is no module '.shop' here; write the module's full name, as shop:app"),
        ("empty:app", "empty:app has no tasks; put @app.task on a function, and import the modules that declare"),
    ],
)
def test_target_that_names_no_app_is_told_with_the_one_that_is_meant(user: User, target: str, expected: str) -> None:
    user.write("shop.py", shop())
    user.write("empty.py", "from reprieve import Reprieve\n\napp = Reprieve()\n")
    assert error_of(user, "worker", target, status=2).startswith(expected)


def test_module_that_hides_behind_one_of_python_is_told(user: User) -> None:
    user.write("token.py", shop())
    line = error_of(user, "worker", "token:app", status=2)
    assert line.startswith("module 'token' has no 'app'; that module is ")
    assert line.endswith(", and token.py is hidden behind it: rename the file")


def test_worker_says_what_it_serves_and_warns_of_a_queue_that_no_task_uses(user: User) -> None:
    user.write("shop.py", shop())
    with user.running("worker", "shop:app", "-q", "mial", "--processes", "1", "--log-style", "text") as worker:
        worker.wait_for("no task uses this queue")
        assert "queue=mial queuesOfTheApp=mail didYouMean=mail" in worker.output
        assert "shop:app on sqlite:///jobs.db, queue mial, 1 task, 1 process × 20 slots" in worker.output
        assert worker.stop() == 0


# stores


def test_worker_ends_when_redis_would_lose_jobs(user: User) -> None:
    user.write("shop.py", shop())
    with redis_servers.own(appendonly="no") as server:
        line = error_of(user, "worker", "shop:app", "--log-level", "error", "--store", server.url, status=1)
    client = f"redis-cli -h 127.0.0.1 -p {server.port}"
    assert f"run {client} config set appendonly yes && {client} config rewrite" in line


def test_worker_ends_when_redis_refuses_the_password(user: User) -> None:
    user.write("shop.py", shop())
    with redis_servers.own(requirepass="right") as server:
        url = server.url.replace("//", "//:wrong@")
        line = error_of(user, "worker", "shop:app", "--log-level", "error", "--store", url, status=1)
    assert "the server does not take this user and password; check those in the URL" in line


def test_worker_ends_when_the_database_does_not_exist(user: User, postgres_url: str) -> None:
    user.write("shop.py", shop())
    url = f"{postgres_url.rpartition('/')[0]}/nowhere"
    line = error_of(user, "worker", "shop:app", "--log-level", "error", "--store", url, status=1)
    assert "the database or the user does not exist; create it, or correct the URL" in line


@pytest.mark.parametrize("scheme", ["redis", "postgresql"])
def test_worker_waits_for_a_server_that_is_down_and_stops_at_once(user: User, scheme: str) -> None:
    user.write("shop.py", shop())
    url = f"{scheme}://127.0.0.1:{free_port()}/0"
    with user.running("worker", "shop:app", "--processes", "1", "--store", url) as worker:
        output = worker.wait_for("store unavailable")
        assert worker.stop() == 0
    assert f"the server at {url} cannot be reached; check that it runs" in output
    assert "worker started" not in worker.output


def test_nothing_cannot_be_classified(user: User) -> None:
    assert error_of(user, "classify", "", status=2).startswith("TEXT must be an error, as in")
