"""Arguments are checked against annotations when they are enqueued, and read by them when a person types them."""

import enum
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal, Optional, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest

from reprieve import Reprieve
from reprieve.codec import Codec
from reprieve.errors import InvalidArgument, UnserialisableArgument
from reprieve.testing import enqueued

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
ID = UUID("0192f0c8-7a10-7000-8000-2f6e11c40ae1")


class Colour(enum.Enum):
    RED = "red"


class Size(enum.IntEnum):
    SMALL = 1


class Word(enum.StrEnum):
    HELLO = "hello"


@dataclass
class Order:
    number: int
    note: str = ""


class Line(msgspec.Struct):
    price: float


class Customer(pydantic.BaseModel):
    name: str


class Movie(TypedDict):
    title: str


class Text(str):
    __slots__ = ()

    def __str__(self) -> "Text":
        return self


class Metres(float):
    __slots__ = ()


class Count(int):
    pass


def of(annotation: object) -> Codec:
    """Return the codec of a function with one parameter, annotated so."""

    def task(value: Any) -> None: ...  # noqa: ANN401 - replaced below

    task.__annotations__["value"] = annotation
    return Codec(task)


FITTING: list[tuple[object, object]] = [
    (int, 42),
    (int, Size.SMALL),
    (float, 42),
    (float, 4.2),
    (str, "42"),
    (str, Text("42")),
    (float, Metres(4.2)),
    (int, Count(42)),
    (str, Word.HELLO),
    (bool, True),
    (None, None),
    (Optional[int], None),  # noqa: UP045 - as many still write it
    (int | str, "42"),
    ("int | None", 42),
    (bytes, b"42"),
    (datetime, NOON),
    (datetime, "2030-01-01T12:00:00Z"),
    (date, date(2030, 1, 1)),
    (Decimal, Decimal("4.2")),
    (UUID, ID),
    (UUID, str(ID)),
    (Colour, Colour.RED),
    (Colour, "red"),
    (Order, Order(1)),
    (Order, {"number": 1}),
    (Line, Line(4)),
    (Customer, Customer(name="Ana")),
    (Movie, {"title": "Playtime"}),
    (Literal["a", 1], "a"),
    (Annotated[int, msgspec.Meta(ge=0)], 0),
    (Annotated[int, "what others read"], 0),
    (list[int], [1, 2]),
    (tuple[int, str], (1, "a")),
    (set[str], {"a"}),
    (dict[str, Order], {"a": Order(1)}),
    (list[Customer], [Customer(name="Ana")]),
    (Any, {"a": [1, None]}),
    (object, [1]),
    ("OnlyForTypes", [1]),
]


@pytest.mark.parametrize(("annotation", "value"), FITTING)
def test_value_that_the_worker_can_read_is_accepted(annotation: object, value: object) -> None:
    codec = of(annotation)
    (arrived,), _ = codec.decode(codec.encode((value,), {}))
    assert codec.decode(codec.encode((), {"value": value})) in (([arrived], {}), ([], {"value": arrived}))
    if type(value) is annotation:
        assert arrived == value


@pytest.mark.parametrize(
    ("annotation", "value", "expected"),
    [
        (int, "42", "must be int, got str"),
        (int, 4.2, "must be int, got float"),
        (int, True, "must be int, got bool"),
        (int, None, "must be int, got NoneType"),
        (int, object(), "must be int, got object"),
        (float, "4.2", "must be float, got str"),
        (float, Decimal("4.2"), "must be float, got Decimal"),
        (str, 42, "must be str, got int"),
        (str, b"42", "must be str, got bytes"),
        (str, NOON, "must be str, got datetime"),
        (bool, 1, "must be bool, got int"),
        (Optional[int], "42", "must be Optional[int], got str"),  # noqa: UP045 - as above
        ("int | None", "42", "must be int | None, got str"),
        (datetime, 42.5j, None),
        (datetime, "tomorrow", "must be datetime.datetime, got str (Invalid RFC3339 encoded datetime)"),
        (Colour, "blue", "got str (Invalid enum value 'blue')"),
        (Order, {"note": ""}, "got dict (Object missing required field `number`)"),
        (Order, Order("1"), "got Order (Expected `int`, got `str` - at `$.number`)"),  # type: ignore[arg-type]  # the point
        (Customer, {"name": 1}, "got dict (1 validation error for Customer name Input should be a valid string"),
        (Movie, {"name": "Playtime"}, "got dict (Object missing required field `title`)"),
        (Literal["a", "b"], "c", "must be Literal['a', 'b'], got str (Invalid enum value 'c')"),
        (Annotated[int, msgspec.Meta(ge=0)], -1, "got int (Expected `int` >= 0)"),
        (list[int], [1, "2"], "must be list[int], got list (Expected `int`, got `str` - at `$[1]`)"),
        (list[int], 1, "must be list[int], got int"),
        (datetime | str, NOON, "got datetime (Type unions may not contain more than one str-like type"),
    ],
)
def test_value_that_does_not_fit_its_annotation_is_refused(
    annotation: object, value: object, expected: str | None
) -> None:
    for args, kwargs in (((value,), {}), ((), {"value": value})):
        with pytest.raises(InvalidArgument if expected else UnserialisableArgument) as refused:
            of(annotation).encode(args, kwargs)
        assert (expected or "cannot be stored as JSON") in str(refused.value)


def test_error_has_the_facts_as_attributes() -> None:
    def send(user_id: int) -> None: ...

    with pytest.raises(InvalidArgument) as refused:
        Codec(send).encode(("42",), {})
    error = refused.value
    assert (error.code, error.parameter, error.expected, error.got) == ("invalid_argument", "user_id", "int", "str")
    assert isinstance(error, TypeError)


def test_what_is_none_by_default_may_be_none() -> None:
    def send(user_id: int = None, order: Order = None) -> None: ...  # type: ignore[assignment]  # noqa: RUF013 - the point

    codec = Codec(send)
    assert codec.decode(codec.encode((None, None), {})) == ([None, None], {})
    assert codec.decode(codec.encode((), {"order": Order(1)})) == ([], {"order": Order(1)})


def collect(*numbers: int, at: datetime = NOON, **words: str) -> None: ...


def positional(number: int, /, word: str = "") -> None: ...


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "parameter"),
    [
        (collect, (1, "2"), {}, "numbers"),
        (collect, (), {"a": "b", "c": 1}, "words"),
        (collect, (1,), {"at": "noon"}, "at"),
        (positional, ("1",), {}, "number"),
        (positional, (1,), {"word": 2}, "word"),
    ],
)
def test_arguments_of_every_kind_are_checked(
    function: Callable[..., object], args: tuple[Any, ...], kwargs: dict[str, Any], parameter: str
) -> None:
    codec = Codec(function)
    with pytest.raises(InvalidArgument) as refused:
        codec.encode(args, kwargs)
    assert refused.value.parameter == parameter
    assert codec.encode((1,), {})


def test_nothing_is_stored_of_a_call_with_a_wrong_argument() -> None:
    with Reprieve("sqlite://:memory:") as app:

        @app.task
        def send(user_id: int) -> None: ...

        with pytest.raises(InvalidArgument):
            send.enqueue("42")  # type: ignore[arg-type]  # the point
        with pytest.raises(InvalidArgument):
            app.enqueue_many(send.call(number) for number in (1, "2"))  # type: ignore[arg-type]  # the point
        assert enqueued(app) == []


@pytest.mark.parametrize(
    ("annotation", "text", "expected"),
    [
        (int, "42", 42),
        (int, "many", "many"),
        (str, "42", "42"),
        (str, '"42"', "42"),
        (str, "null", "null"),
        (str | None, "null", None),
        (str | None, "42", "42"),
        (int | str, "42", 42),
        (float, "1e3", 1_000.0),
        (datetime, "2030-01-01T12:00:00Z", NOON),
        (bytes, "NDI=", b"42"),
        (dict[int, str], '{"1": "a"}', {1: "a"}),
        (list[str], '["a"]', ["a"]),
        (Literal["1", "2"], "1", "1"),
        (Order, '{"number": 1}', Order(1)),
        (Any, "42", 42),
        (Any, "hello", "hello"),
    ],
)
def test_text_is_read_as_the_annotation_says(annotation: object, text: str, expected: object) -> None:
    codec = of(annotation)
    assert codec.read([text], {}) == ((expected,), {})
    assert codec.read([], {"value": text}) == ((expected,), {})


def test_text_is_read_for_parameters_of_every_kind() -> None:
    assert Codec(collect).read(["1", "2"], {"at": "noon", "a": "3"}) == ((1, 2), {"at": "noon", "a": "3"})
    with pytest.raises(UnserialisableArgument, match=r"positional cannot be called with these arguments: .*missing"):
        Codec(positional).read([], {})
