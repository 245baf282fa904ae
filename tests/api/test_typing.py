"""What a type checker says about tasks: a wrong argument is an error where it is written."""

import re
from pathlib import Path

import pytest
from mypy import api

ROOT = Path(__file__).parents[2]

PRELUDE = """\
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from reprieve import JobHandle, Reprieve, Task

app = Reprieve("sqlite://:memory:")


@app.task(queue="mail", timeout="30s")
async def send(user: int, *, template: str = "hello") -> str:
    return template


@app.task
def double(number: int) -> int:
    return number * 2


class Pool: ...


@app.lifespan
async def resources() -> AsyncIterator[Pool]:
    yield Pool()


@app.lifespan
@asynccontextmanager
async def others() -> AsyncIterator[str]:
    yield "other"


async def returns() -> Pool:
    return Pool()


"""

RIGHT = {
    "send.enqueue(42)": "",
    'send.enqueue(42, template="short")': "",
    'send.using(tenant="acme", delay="5m", priority=1, key="a", max_attempts=3).enqueue(42)': "",
    "send.using(delay=300).using(deadline=1.5).call(42)": "",
    "app.enqueue_many(double.call(n) for n in range(3))": "",
    "reveal_type(double)": "reprieve.task.Task[[number: int], int]",
    "reveal_type(double(1))": "int",
    "print(reveal_type(send(1)))": "typing.Coroutine[Any, Any, str]",
    "reveal_type(double.enqueue(1))": "reprieve.handle.JobHandle[int]",
    "reveal_type(double.enqueue(1).result())": "int",
    'print(reveal_type(double.enqueue(1).aresult(timeout="5s")))': "typing.Coroutine[Any, Any, int]",
    "reveal_type(double.enqueue(1).fetch())": "reprieve.core.job.Job",
    'reveal_type(double.job("0192f0c8").result())': "int",
    'reveal_type(app.job("0192f0c8").result())': "object",
    "reveal_type(send)": "reprieve.task.AsyncTask[[user: int, *, template: str =",
    "reveal_type(send.enqueue(1))": "reprieve.handle.JobHandle[str]",
    'reveal_type(send.using(tenant="acme").enqueue(1).result())': "str",
    "reveal_type(app.enqueue(send.call(1)).result())": "str",
    "reveal_type(app.enqueue_many(double.call(n) for n in range(3)))": "list[reprieve.handle.JobHandle[int]]",
    "app.enqueue_many([send.call(1), double.call(2)])": "",
    "handle: JobHandle[object] = double.enqueue(1)": "",
    "reveal_type(double.call(1))": "reprieve.call.Call[int]",
    'reveal_type(double.using(tenant="acme"))': "reprieve.task.Task[[number: int], int]",
    "task: Task[[int], int] = double": "",
    "reveal_type(app.resource(Pool))": "snippets.Pool",
    "reveal_type(resources)": "def () -> typing.AsyncIterator[snippets.Pool]",
    "reveal_type(app.lifespan_context())": "contextlib.AbstractAsyncContextManager[None",
}

WRONG = {
    'send.enqueue("42")': 'incompatible type "str"; expected "int"',
    "send.enqueue()": 'Missing positional argument "user"',
    "send.enqueue(42, 43)": "Too many positional arguments",
    "send.enqueue(42, colour=1)": 'Unexpected keyword argument "colour"',
    "send.enqueue(42, template=1)": 'incompatible type "int"; expected "str"',
    'send.enqueue(42, tenant="acme")': 'Unexpected keyword argument "tenant"',
    'send.using(colour="blue")': 'Unexpected keyword argument "colour" for "using"',
    'send.using(priority="first")': 'incompatible type "str"; expected "int"',
    "send.using(tenant=1)": 'incompatible type "int"; expected "str"',
    'send.using(at="noon")': 'expected "datetime"',
    'send.call("42")': 'incompatible type "str"; expected "int"',
    "send.delay(42)": 'has no attribute "delay"',
    "double.apply_async((1,))": 'has no attribute "apply_async"',
    "double.using(countdown=5)": 'Unexpected keyword argument "countdown" for "using"',
    'double("1")': 'incompatible type "str"; expected "int"',
    "app.task(timeout=[])(lambda: None)": "No overload variant",
    'app.task(executor="fiber")(lambda: None)': "No overload variant",
    "task: Task[[str], int] = double": "Incompatible types in assignment",
    "handle: JobHandle[str] = double.enqueue(1)": "Incompatible types in assignment",
    "double.enqueue(1).result(5)": "Too many positional arguments",
    'double.enqueue(1).retry(by="ana")': 'Missing named argument "reason"',
    "app.resource(42)": 'expected "type[Never]"',
    "app.lifespan(returns)": 'Value of type variable "L" of "lifespan" of "Reprieve" cannot be',
    "app.lifespan(double)": 'Value of type variable "L" of "lifespan" of "Reprieve" cannot be',
}


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Let mypy read every line once; answer what it says about each."""
    folder = tmp_path_factory.mktemp("typing")
    lines = [*RIGHT, *WRONG]
    first = PRELUDE.count("\n") + 1
    body = "\n".join(_on_its_own(number, line) for number, line in enumerate(lines))
    (folder / "snippets.py").write_text(PRELUDE + body + "\n")
    options = ["--strict", "--no-error-summary", "--hide-error-context", "--cache-dir", str(folder / "cache")]
    report, complaints, _ = api.run(
        [*options, "--config-file", str(ROOT / "pyproject.toml"), str(folder / "snippets.py")]
    )
    assert complaints == ""
    answers = dict.fromkeys(lines, "")
    for number, text in re.findall(r"^\S*snippets\.py:(\d+): (.*)$", report, re.MULTILINE):
        # Older releases of mypy write the module of every built-in class.
        answers[lines[int(number) - first]] += text.replace("builtins.", "") + "\n"
    return answers


def _on_its_own(number: int, line: str) -> str:
    return line.replace("task:", f"task_{number}:").replace("handle:", f"handle_{number}:")


@pytest.mark.parametrize("line", RIGHT)
def test_what_is_right_is_accepted_and_known_for_what_it_is(said: dict[str, str], line: str) -> None:
    assert "error" not in said[line]
    assert RIGHT[line] in said[line]


@pytest.mark.parametrize("line", WRONG)
def test_what_is_wrong_is_an_error_where_it_is_written(said: dict[str, str], line: str) -> None:
    assert "error" in said[line]
    assert WRONG[line] in said[line]
