"""Texts for terminals."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve.core.printable import printable, printable_json

CONTROLS = ["\x00", "\x07", "\x08", "\r", "\x1b", "\x7f", "\x85", "\x9b", "\u200e", "\u202e", "\u2066", "\ufeff"]


@pytest.mark.parametrize("control", CONTROLS, ids=ascii)
def test_what_a_terminal_obeys_is_replaced(control: str) -> None:
    assert printable(f"a{control}[31mé\n\tb") == "a [31mé\n\tb"


@pytest.mark.parametrize("control", CONTROLS, ids=ascii)
def test_what_a_terminal_obeys_is_escaped_in_json(control: str) -> None:
    document = json.dumps({"é": f"a{control}b"}, ensure_ascii=False)
    assert control not in printable_json(document)
    assert json.loads(printable_json(document)) == {"é": f"a{control}b"}


@given(st.text())
def test_a_text_without_them_stays_as_it_is(text: str) -> None:
    shown = printable(text)
    assert len(shown) == len(text)
    assert printable(shown) == shown
    assert json.loads(printable_json(json.dumps(text))) == text
    if text.isprintable():
        assert shown == text
