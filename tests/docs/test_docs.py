"""The documents tell the truth: their code runs, their links lead somewhere, their comments are what is printed."""

import ast
import gc
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")
LITERALS = (*"'[{(-0123456789", "True", "False", "None")
"""How a comment begins that says what its line returns."""

FILE = re.compile(r"^`(\w+)\.py`:\n\n```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
"""A module that the page tells its reader to save; other blocks of the page may import it."""

BLOCKS = [
    pytest.param(page, block, id=f"{page.relative_to(ROOT)}-{number}")
    for page in PAGES
    for number, block in enumerate(BLOCK.findall(page.read_text("utf-8")))
]


def test_there_are_documents() -> None:
    assert ROOT / "README.md" in PAGES
    assert BLOCKS


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Work in an empty folder, whose modules are imported anew by every test."""
    before = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def database(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Name an empty PostgreSQL database in DATABASE_URL, for blocks that ask for one."""
    if "DATABASE_URL" not in request.getfixturevalue("block"):
        yield
        return
    server, name = request.getfixturevalue("postgres_url"), f"docs_{uuid4().hex}"
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(f"create database {name}")
        monkeypatch.setenv("DATABASE_URL", f"{server.rpartition('/')[0]}/{name}")
        yield
        admin.execute(f"drop database {name} with (force)")


@pytest.mark.parametrize(("page", "block"), BLOCKS)
@pytest.mark.usefixtures("database")
@pytest.mark.filterwarnings("ignore:Using `httpx` with")  # of starlette, by any import of its TestClient
def test_every_block_of_code_runs_and_says_what_its_comments_say(page: Path, block: str, folder: Path) -> None:
    for name, text in FILE.findall(page.read_text("utf-8")):
        (folder / f"{name}.py").write_text(text, "utf-8")
    names: dict[str, object] = {}
    for statement in ast.parse(block).body:
        source = ast.get_source_segment(block, statement) or ""
        if not isinstance(statement, ast.Expr):
            exec(compile(ast.Module([statement], []), "<document>", "exec"), names)  # noqa: S102 - our own documents
            continue
        answer = eval(compile(source, "<document>", "eval"), names)  # noqa: S307 - our own documents
        comment = block.splitlines()[(statement.end_lineno or 1) - 1].partition("#")[2].strip()
        if comment.startswith(LITERALS):
            assert comment.startswith(repr(answer)), source
    # What a block leaves open is reported here, and not in whatever test comes when it is collected.
    names.clear()
    gc.collect()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file(page: Path) -> None:
    for target in LINK.findall(BLOCK.sub("", page.read_text("utf-8"))):
        assert (page.parent / target).exists(), target


def test_every_command_of_make_in_the_documents_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    for page in PAGES:
        commands = re.findall(r"^make ([a-z]+)", page.read_text("utf-8"), re.MULTILINE)
        assert set(commands) <= targets, page
