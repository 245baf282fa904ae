"""Headers: what they may hold, and how an error names the value and its bound."""

from collections import OrderedDict
from enum import IntEnum, StrEnum

import msgspec
import pytest
from msgspec.structs import fields, replace

from reprieve.core.headers import (
    MAX_CALLER_BYTES,
    MAX_HEADERS_BYTES,
    NO_HEADERS,
    RESERVED_NAMES,
    Headers,
    check_headers,
    is_traceparent,
    trace_of,
)
from reprieve.errors import ValidationError

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
ID = "0192f0c8-7a10-7000-8000-2f6e11c40ae1"
FULL = Headers(
    traceparent=TRACE,
    tracestate="vendor=1,other=2",
    tags=("nightly", "größe"),
    parent=ID,
    linked="0192f0c8-7a10-7000-8000-2f6e11c40ae2",
    operation="import-7",
    credits=3,
    sla_at=1_700_000_000_000,
    region="eu-west-1",
    user="ana@acme.example",
    own={"origin": "import", "x-request-id": ""},
    tells_all=True,
)


class Colour(StrEnum):
    RED = "red"


class Level(IntEnum):
    TWO = 2


class Word(str):
    __slots__ = ()


def test_headers_within_their_bounds_are_returned_as_they_are() -> None:
    assert check_headers(FULL) is FULL
    assert check_headers(NO_HEADERS) is NO_HEADERS
    assert all(getattr(FULL, field.name) != getattr(NO_HEADERS, field.name) for field in fields(Headers))


@pytest.mark.parametrize(
    ("given", "plain"),
    [
        (Headers(tags=["a", "b"]), Headers(tags=("a", "b"))),  # type: ignore[arg-type]  # as people write it
        (Headers(tags=(Colour.RED,)), Headers(tags=("red",))),
        (Headers(user=Word("ana")), Headers(user="ana")),
        (Headers(own={Word("origin"): Word("x")}), Headers(own={"origin": "x"})),
        (Headers(traceparent=Word(TRACE), linked=Word(ID)), Headers(traceparent=TRACE, linked=ID)),
        (Headers(traceparent=Word(), parent=Word(), linked=Word()), Headers()),
        (Headers(tracestate=Word("a=1")), Headers(tracestate="a=1")),
        (Headers(own=OrderedDict(origin="x")), Headers(own={"origin": "x"})),
        (Headers(credits=Level.TWO, sla_at=Level.TWO), Headers(credits=2, sla_at=2)),
    ],
)
def test_values_become_plain(given: Headers, plain: Headers) -> None:
    checked = check_headers(given)
    assert checked == plain
    assert checked is not given
    assert check_headers(checked) is checked
    assert {type(tag) for tag in checked.tags} <= {str}
    assert {type(value) for value in (checked.user, checked.traceparent, checked.linked, *checked.own)} == {str}
    assert (type(checked.own), type(checked.credits)) == (dict, int)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"tags": tuple(map(str, range(17)))}, "tags must be at most 16, got 17"),
        ({"tags": ("a\nb",)}, r"each of tags must be 1–64 printable characters, got 'a\nb'"),
        ({"tags": ("a\x1b[31mb",)}, r"each of tags must be 1–64 printable characters, got 'a\x1b[31mb'"),
        ({"tags": ("",)}, "each of tags must be 1–64 printable characters, got ''"),
        ({"tags": ("x" * 65,)}, "of 65 characters"),
        ({"tags": (7,)}, "each of tags must be 1–64 printable characters, got 7"),
        ({"tags": ("a", "b", "a")}, "tags must be different from each other, got 'a' twice"),
        ({"tags": "nightly"}, 'tags must be a list of texts, as ["nightly", "eu"], got \'nightly\''),
        ({"tags": 7}, "tags must be a list of texts"),
        ({"own": {str(n): "x" for n in range(17)}}, "headers must be at most 16, got 17"),
        ({"own": {"Origin": "x"}}, "names in headers must be 1–64 of the characters a–z"),
        ({"own": {"x" * 65: "x"}}, "names in headers must be 1–64 of the characters"),
        ({"own": {7: "x"}}, "names in headers must be 1–64 of the characters"),
        ({"own": {"a": "x" * 513}}, "headers['a'] must be 0–512 printable characters"),
        ({"own": {"a": "x\r\ny"}}, "headers['a'] must be 0–512 printable characters"),
        ({"own": {"a": 7}}, "headers['a'] must be 0–512 printable characters, got 7"),
        ({"own": ["a"]}, "headers must be names and texts"),
        ({"own": {"traceparent": TRACE}}, "the name 'traceparent': Reprieve uses it; write using(traceparent=…)"),
        ({"own": {"reprieve-x": "1"}}, "the name 'reprieve-x': Reprieve uses it; choose another name"),
        ({"user": "x" * 257}, "user must be 0–256 printable characters"),
        ({"user": None}, "user must be 0–256 printable characters, got None"),
        ({"traceparent": "00-abc"}, "traceparent must have the W3C format"),
        ({"traceparent": 7}, "traceparent must have the W3C format"),
        ({"traceparent": None}, "traceparent must have the W3C format"),
        ({"tracestate": "x" * 513}, "tracestate must be at most 512 printable ASCII characters"),
        ({"tracestate": "a=größe"}, "tracestate must be at most 512 printable ASCII characters"),
        ({"tracestate": 7}, "tracestate must be at most 512 printable ASCII characters, got 7"),
        ({"parent": "42"}, "parent must be the id of a job"),
        ({"parent": None}, "parent must be the id of a job"),
        ({"parent": b""}, "parent must be the id of a job"),
        ({"linked": 7}, "linked must be the id of a job"),
        ({"linked": 0}, "linked must be the id of a job"),
        ({"operation": "x" * 65}, "operation must be at most 64 printable ASCII characters"),
        ({"region": "eu\0"}, "region must be at most 64 printable ASCII characters"),
        ({"credits": -1}, "credits must be a whole number of 0 or more, got -1"),
        ({"credits": True}, "credits must be a whole number"),
        ({"sla_at": 1 << 48}, "sla_at must be a whole number from 0 to"),
        ({"sla_at": 1.5}, "sla_at must be a whole number"),
    ],
)
def test_a_header_over_its_bound_is_refused_with_its_value(given: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError) as refused:
        check_headers(Headers(**given))  # type: ignore[arg-type]  # of the wrong type, that is the point
    assert said in str(refused.value)


def test_all_headers_together_have_a_bound_in_bytes() -> None:
    most = Headers(own={f"h{n}": "ö" * 93 for n in range(16)})
    assert check_headers(most) is most
    with pytest.raises(ValidationError, match="tags, user and headers of a job must have at most 3,072 bytes together"):
        check_headers(replace(most, tags=("nightly" * 9,)))


def test_there_is_always_room_for_the_headers_that_reprieve_adds() -> None:
    room = MAX_CALLER_BYTES - len(msgspec.msgpack.encode(((), "", {"a": ""})))
    largest = Headers(
        traceparent=TRACE.replace("00-", "cc-", 1) + "-" + "x" * 100,
        tracestate="x" * 512,
        parent=ID,
        linked=ID,
        operation="x" * 64,
        credits=2**31 - 1,
        sla_at=(1 << 48) - 1,
        region="x" * 64,
        own={f"{n:x}": "x" * (room // 16 - 7) for n in range(16)},
    )
    assert check_headers(largest) is largest
    assert len(msgspec.msgpack.encode(largest)) <= MAX_HEADERS_BYTES


def test_what_are_no_headers_is_refused() -> None:
    with pytest.raises(ValidationError, match="headers of a job must be Headers, got"):
        check_headers({"origin": "x"})


@pytest.mark.parametrize("name", sorted(RESERVED_NAMES))
def test_a_reserved_name_is_refused(name: str) -> None:
    with pytest.raises(ValidationError, match=f"must not have the name '{name}'"):
        check_headers(Headers(own={name: "x"}))


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        (TRACE, True),
        (TRACE.replace("00-", "01-", 1), True),
        (TRACE.replace("00-", "cc-", 1) + "-what-comes-later", True),
        (TRACE + "-more", False),
        (TRACE.replace("00-", "ff-", 1), False),
        (TRACE.upper(), False),
        (f"00-{'0' * 32}-00f067aa0ba902b7-01", False),
        (f"00-4bf92f3577b34da6a3ce929d0e0e4736-{'0' * 16}-01", False),
        (TRACE + "\n", False),
        ("", False),
        (None, False),
    ],
)
def test_a_trace_context_has_the_w3c_format(text: object, is_one: bool) -> None:
    assert is_traceparent(text) is is_one


def test_a_malformed_trace_context_of_the_environment_is_dropped() -> None:
    assert trace_of(TRACE, "a=1") == (TRACE, "a=1")
    assert trace_of(TRACE, "größe") == (TRACE, "")
    assert trace_of("00-abc", "a=1") == ("", "")
