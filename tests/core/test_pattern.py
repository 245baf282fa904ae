"""The regular expressions of rules: they mean what they mean to `re`, and take no longer than a text is long."""

import re
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve.core.failure import read
from reprieve.core.pattern import MAX_CACHED_STEPS, pattern_of
from reprieve.core.rule import Rule
from reprieve.core.text import MAX_TEXT_CHARS
from reprieve.errors import InvalidRule

HOSTILE: Final = [
    "(a+)+$",
    "(a|a)*b",
    "(a|aa)+$",
    "(x+x+)+y",
    "(.*)(.*)(.*)z",
    "(a?){25}a{25}b",
    r"(\w+\s?)*:",
    "(?:a*)*?!",
]
"""Patterns that take `re` hours on a message of the greatest length."""


@pytest.mark.parametrize("pattern", HOSTILE)
def test_a_hostile_pattern_ends_on_a_long_message(pattern: str) -> None:
    for letter in ("a", "x", "ab"):
        message = (letter * MAX_TEXT_CHARS)[:MAX_TEXT_CHARS]
        pattern_of(pattern).search(message)
        assert not pattern_of(pattern + "#").search(message)
        assert pattern_of(pattern + "#|a#|x#|b#").search(message[:-1] + "#")


LEAVES = st.sampled_from(
    [
        "a",
        "b",
        "K",
        "ß",
        "\u017f",
        ".",
        "[ab]",
        "[^a]",
        "[a-c]",
        "[^\\W_]",
        r"\w",
        r"\d",
        r"\s",
        "^",
        "$",
        r"\b",
        r"\B",
        "",
    ]
)


def _grow(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    repeats = st.sampled_from(["*", "+", "?", "*?", "+?", "{2}", "{1,3}", "{0,2}?", "{2,}"])
    return st.one_of(
        st.lists(inner, min_size=1, max_size=4).map("".join),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: f"({'|'.join(parts)})"),
        st.builds(lambda part, times: f"(?:{part}){times}", inner, repeats),
        inner.map(lambda part: f"(?-i:{part})"),
    )


@given(st.recursive(LEAVES, _grow, max_leaves=8), st.text("abKk\u017fßs_ 1-", max_size=8))
def test_a_pattern_means_what_it_means_to_re(pattern: str, text: str) -> None:
    # The second repeat of any length makes it one that `re` is not trusted with.
    wanted = re.search(f"(?:{pattern})|-+-+", text, re.IGNORECASE)
    try:
        found = pattern_of(f"(?:{pattern})|-+-+")
    except re.error as error:
        assert "parts" in str(error)  # noqa: PT017 - a pattern may be too large
        return
    assert bool(found.search(text)) == (wanted is not None)


@pytest.mark.parametrize(
    ("pattern", "text", "is_found"),
    [
        ("quota", "Over QUOTA", True),
        ("(?!.*retry)quota", "quota, retry", False),
        ("(?<=over )quota", "over quota", True),
        (r"(a)?(?(1)b{1,9}|c)!", "abb!", True),
        (r"(a)?(?(1)b{1,9})!", "!", True),
        (r"(.)\1", "abccd", True),
        ("(?>a+)b", "aab", True),
        ("a++b", "aab", True),
        ("[ab]{300}x", "ab" * 200 + "x", True),
        ("(?:.{0,600})x", "y" * 700 + "x", True),
    ],
)
def test_what_has_few_ways_through_it_is_left_to_re(pattern: str, text: str, *, is_found: bool) -> None:
    assert bool(pattern_of(pattern).search(text)) == is_found
    assert isinstance(pattern_of(pattern), re.Pattern)


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(?!a)(a+)+", "assert not cannot be combined"),
        (r"(a+)+\1", "groupref cannot be combined"),
        ("(?>(a+)+)b+", "atomic group cannot be combined"),
        ("(?:.{0,300}x){3}", "more than 500 parts"),
        ("(", "unterminated"),
    ],
)
def test_what_cannot_be_bounded_is_refused_when_it_is_declared(pattern: str, reason: str) -> None:
    with pytest.raises(InvalidRule, match=reason):
        Rule(message=pattern, kind="permanent")


def test_a_text_with_very_many_characters_needs_bounded_memory() -> None:
    pattern = pattern_of("(x+y+)+z")
    for first in range(0x4E00, 0x4E00 + 2 * MAX_CACHED_STEPS, MAX_TEXT_CHARS):
        assert not pattern.search("".join(map(chr, range(first, first + MAX_TEXT_CHARS))))
    assert pattern.search("xyxyz")


def test_a_rule_looks_no_further_than_the_longest_message() -> None:
    rule = Rule(message="needle", kind="permanent")
    assert rule.matches(read("hay " * 100 + "needle"))
    assert rule.judge(read("hay")) is None
