"""Text that people, tasks and dependencies supply: one printable line, and not too long."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve.core.change import Request
from reprieve.core.job import CancelRequest
from reprieve.core.move import Cancel, ManualRetry
from reprieve.core.text import MAX_CODE_CHARS, MAX_PERSON_CHARS, MAX_TEXT_CHARS, clean, clean_code
from reprieve.core.verdict import Verdict
from reprieve.errors import ReprieveError, ValidationError

UGLY = "a\0b\x1b[31mc\nd\ud800e\u202ef\u00a0g\U000e0001h"
TIDY = "a b c d e f g h"


@given(st.text(st.characters()))
def test_a_clean_text_is_printable_and_stays_clean(text: str) -> None:
    once = clean(text)
    assert clean(once) == once
    assert once.isprintable()
    once.encode()


def test_a_long_text_is_cut_and_says_so() -> None:
    kept = clean("x" * 72_000)
    assert len(kept) == MAX_TEXT_CHARS
    assert kept.endswith("x… (cut, of 72,000 characters)")
    assert clean(kept) == kept
    assert clean("x" * MAX_TEXT_CHARS) == "x" * MAX_TEXT_CHARS


def test_a_long_text_without_a_printable_character_is_empty() -> None:
    assert clean("\0" * 72_000) == ""


def test_a_code_is_clean_and_short() -> None:
    assert clean_code(UGLY) == TIDY
    assert clean_code("x" * 500) == "x" * MAX_CODE_CHARS


@pytest.mark.parametrize(
    "made",
    [
        Request(by=UGLY, reason=UGLY),
        CancelRequest(by=UGLY, reason=UGLY),
        Cancel(by=UGLY, reason=UGLY),
        ManualRetry(by=UGLY, reason=UGLY, due_at=1),
    ],
    ids=lambda made: type(made).__name__,
)
def test_what_a_person_writes_is_clean_before_any_store_sees_it(made: Request | CancelRequest | Cancel) -> None:
    assert (made.by, made.reason) == (TIDY, TIDY)


@pytest.mark.parametrize("kind", [Request, CancelRequest, Cancel])
def test_what_a_person_writes_is_cut(kind: type[Request | CancelRequest | Cancel]) -> None:
    made = kind(by="b" * 72_000, reason="r" * 72_000)
    assert (len(made.by), len(made.reason)) == (MAX_PERSON_CHARS, MAX_TEXT_CHARS)


@pytest.mark.parametrize(("by", "reason"), [("", "why"), ("ana", " "), ("\0", "why"), ("ana", "\ud800" * 5_000)])
def test_a_request_without_a_name_or_a_reason_is_refused(by: str, reason: str) -> None:
    with pytest.raises(ValidationError, match="needs a name"):
        Request(by=by, reason=reason)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"by": 5}, "by must be text, got 5"),
        ({"reason": None}, "reason must be text, got None"),
        ({"force": 1}, "force must be True or False, got 1"),
        ({"delay": "soon"}, "delay must be a duration"),
    ],
)
def test_a_request_with_a_value_of_the_wrong_type_names_it(options: dict[str, object], word: str) -> None:
    with pytest.raises(ReprieveError, match=word):
        Request(**{"by": "ana", "reason": "why", **options})  # type: ignore[arg-type]  # that is the point


def test_a_verdict_is_clean() -> None:
    verdict = Verdict(kind="transient", code=UGLY, rule=UGLY)
    assert (verdict.code, verdict.rule) == (TIDY, TIDY)
