"""Every promise on the page names the tests that show it, and they exist."""

import ast
import re
from functools import cache

from tests.docs.page import ROOT, text_of

PAGE = text_of("docs/reference/promises.md")
NAMED = re.compile(r"<!-- (.+?) -->")


@cache
def functions_in(name: str) -> frozenset[str]:
    tree = ast.parse((ROOT / name).read_text("utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def test_every_test_that_is_named_exists() -> None:
    named = [test for comment in NAMED.findall(PAGE) for test in comment.split()]
    assert len(named) > 20
    assert [test for test in named if test.partition("::")[2] not in functions_in(test.partition("::")[0])] == []


def test_every_promise_names_a_test() -> None:
    rows = PAGE.partition("| promise |")[2].partition("\n\n")[0].splitlines()[2:]
    crashes = PAGE.partition("| what crashes |")[2].partition("\n\n")[0].splitlines()[2:]
    assert len(rows) > 5
    assert len(crashes) > 4
    assert [row for row in (*rows, *crashes) if not NAMED.search(row)] == []
