"""The documents tell the truth: their code runs, their links lead somewhere, their comments are what is printed."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")
LITERALS = (*"'[{(-0123456789", "True", "False", "None")
"""How a comment begins that says what its line returns."""

BLOCKS = [
    pytest.param(block, id=f"{page.relative_to(ROOT)}-{number}")
    for page in PAGES
    for number, block in enumerate(BLOCK.findall(page.read_text("utf-8")))
]


def test_there_are_documents() -> None:
    assert ROOT / "README.md" in PAGES
    assert BLOCKS


@pytest.mark.parametrize("block", BLOCKS)
def test_every_block_of_code_runs_and_says_what_its_comments_say(
    block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file(page: Path) -> None:
    for target in LINK.findall(BLOCK.sub("", page.read_text("utf-8"))):
        assert (page.parent / target).exists(), target


def test_every_command_of_make_in_the_documents_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    for page in PAGES:
        commands = re.findall(r"^make ([a-z]+)", page.read_text("utf-8"), re.MULTILINE)
        assert set(commands) <= targets, page
