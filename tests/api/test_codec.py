"""Arguments to bytes and back."""

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum

import msgspec
import pydantic
import pytest

from reprieve.codec import Codec
from reprieve.errors import InvalidArgument, UndecodablePayload, UnserialisableArgument
from reprieve.json_data import dump, load


@dataclass
class Address:
    street: str
    number: int = 1


class Order(msgspec.Struct):
    id: int
    to: Address


class Colour(Enum):
    RED = "red"


class Model(pydantic.BaseModel):
    id: float


def send(user: int, *, template: str = "hello") -> None: ...


def paint(shade: "Shade") -> None: ...


EARLY = Codec(paint)


@dataclass
class Shade:
    depth: float


def ship(  # noqa: PLR0917 - one of each kind
    order: Order, address: Address, at: datetime, price: Decimal, colour: Colour, model: Model, raw: object = None
) -> None: ...


def collect(*numbers: int, **words: Address) -> None: ...


def untyped(value, other=2):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201 - which is the point
    return value, other


def test_plain_arguments_come_back_as_they_were() -> None:
    codec = Codec(send)
    assert codec.decode(codec.encode((42,), {"template": "ünïcode"})) == ([42], {"template": "ünïcode"})
    assert codec.decode(codec.encode((), {"user": 1})) == ([1], {})


def test_arguments_come_back_as_what_their_annotations_say() -> None:
    codec = Codec(ship)
    arguments = (
        Order(7, Address("Rua Augusta", 3)),
        Address("Main"),
        datetime(2025, 10, 9, tzinfo=UTC),
        Decimal("1.10"),
        Colour.RED,
        Model(id=5),
        {"deep": [1, None, 2.5]},
    )
    args, kwargs = codec.decode(codec.encode(arguments, {}))
    assert tuple(args) == arguments
    assert kwargs == {}


def test_any_number_of_arguments_is_converted_one_by_one() -> None:
    codec = Codec(collect)
    decoded = codec.decode(codec.encode((1, 2, 3), {"home": Address("A"), "work": Address("B", 2)}))
    assert decoded == ([1, 2, 3], {"home": Address("A"), "work": Address("B", 2)})


def test_without_annotations_plain_json_arrives() -> None:
    codec = Codec(untyped)
    value: dict[str, object] = {"street": "A", "numbers": [1, 2.5, None, True, {"deep": []}]}
    assert codec.decode(codec.encode((value,), {"other": [1, 2]})) == ([value, [1, 2]], {})


def test_an_annotation_that_only_a_type_checker_can_read_is_ignored() -> None:
    def task(value: "OnlyForTypes") -> None: ...  # type: ignore[name-defined]  # noqa: F821 - which is the point

    codec = Codec(task)
    assert codec.decode(codec.encode((1,), {})) == ([1], {})


def test_an_annotation_that_cannot_be_read_hides_no_other() -> None:
    def task(value: "OnlyForTypes", other: "msgspec.Missing", at: datetime) -> None: ...  # type: ignore[name-defined]  # noqa: F821 - as above

    codec, noon = Codec(task), datetime(2030, 1, 1, 12, tzinfo=UTC)
    assert codec.decode(codec.encode((1, 2, noon), {})) == ([1, 2, noon], {})
    assert codec.decode(codec.encode((1, 2), {"at": noon})) == ([1, 2, noon], {})


def test_annotations_are_read_when_they_are_first_needed() -> None:
    assert EARLY.decode(EARLY.encode((Shade(3),), {})) == ([Shade(3)], {})


@pytest.mark.parametrize(("args", "kwargs"), [((), {}), ((1, 2), {}), ((1,), {"colour": "red"}), ((1,), {"user": 1})])
def test_a_call_that_the_function_does_not_take_is_refused_before_it_is_stored(
    args: tuple[object, ...], kwargs: dict[str, object]
) -> None:
    with pytest.raises(UnserialisableArgument, match="send cannot be called with these arguments") as caught:
        Codec(send).encode(args, kwargs)
    assert caught.value.code == "unserialisable_argument"


@pytest.mark.parametrize(
    ("kwargs", "reason"),
    [
        ({"usr": 1}, r"it has no parameter 'usr'; did you mean user\?"),
        ({"user": 1, "m": 1, "q": 2}, "it has no parameter 'm', 'q'; the parameters are user, template"),
    ],
)
def test_a_keyword_that_the_function_does_not_have_is_named(kwargs: dict[str, object], reason: str) -> None:
    for use in (Codec(send).encode, Codec(send).read):
        with pytest.raises(UnserialisableArgument, match=f"send cannot be called with these arguments: {reason}"):
            use((), kwargs)  # type: ignore[arg-type]  # one of them reads texts


@pytest.mark.parametrize("value", [object(), {1, object()}, lambda: None, float("nan").__class__])
def test_what_is_no_data_is_refused_by_name(value: object) -> None:
    with pytest.raises(UnserialisableArgument, match="arguments of untyped cannot be stored as JSON"):
        Codec(untyped).encode((value,), {})


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_a_float_that_is_no_finite_number_is_refused_wherever_it_hides(number: float) -> None:
    def task(value: object, *, other: object = None) -> None: ...

    codec = Codec(task)
    for value in (number, [1, {"deep": number}], Shade(number), (None, number)):
        with pytest.raises(UnserialisableArgument, match="a NaN or an infinity in the arguments of"):
            codec.encode((value,), {})
    with pytest.raises(UnserialisableArgument, match="Model does not read its own JSON"):
        codec.encode((Model(id=number),), {})
    with pytest.raises(UnserialisableArgument, match="a NaN or an infinity in the arguments of"):
        codec.encode((None,), {"other": number})


def test_nothing_and_the_word_null_are_no_such_numbers() -> None:
    codec = Codec(untyped)
    assert codec.decode(codec.encode((None,), {"other": ["null", 1.5]})) == ([None, ["null", 1.5]], {})


def test_a_value_that_contains_itself_is_refused() -> None:
    circle: list[object] = []
    circle.append(circle)
    with pytest.raises(UnserialisableArgument):
        dump(circle, "result")


@pytest.mark.parametrize(
    "data",
    [b"", b"\xff\x00", b"{}", b"[[1]]", b'[["many"], {}]', b"[[1, 2], {}]", b'[[], {"unknown": 1}]', b"cos\nsystem\n"],
)
def test_a_payload_that_does_not_fit_is_refused(data: bytes) -> None:
    with pytest.raises(UndecodablePayload, match="does not fit send") as caught:
        Codec(send).decode(data)
    assert caught.value.code == "undecodable_payload"


def test_a_model_that_refuses_its_data_is_a_payload_that_does_not_fit() -> None:
    def task(model: Model) -> None: ...

    with pytest.raises(UndecodablePayload, match=r"id\s+Field required"):
        Codec(task).decode(b"[[{}], {}]")


def test_results_come_back_as_plain_data() -> None:
    assert load(dump({"to": Address("A")}, "result")) == {"to": {"street": "A", "number": 1}}


def test_what_fitted_once_is_checked_again_where_its_type_does_not_tell() -> None:
    def weigh(grams: float, label: str = "", *, box: int = 1) -> None: ...

    codec = Codec(weigh)
    assert codec.encode((1.5, "a"), {"box": 2}) == codec.encode((1.5, "a"), {"box": 2})
    with pytest.raises(UnserialisableArgument, match="NaN or an infinity"):
        codec.encode((float("nan"), "a"), {"box": 2})
    for args, kwargs in (((True, "a"), {"box": 2}), ((1.5, "a"), {"box": "2"}), ((1.5, 2), {})):
        with pytest.raises(InvalidArgument):
            codec.encode(args, kwargs)
    with pytest.raises(UnserialisableArgument, match="no parameter 'bux'"):
        codec.encode((1.5, "a"), {"bux": 2})


def test_more_types_than_a_codec_remembers_are_checked_all_the_same() -> None:
    def keep(value: object) -> None: ...

    codec = Codec(keep)
    subclasses = [type(f"Text{number}", (str,), {}) for number in range(100)]
    assert {codec.encode((kind("a"),), {}) for kind in subclasses} == {b'[["a"],{}]'}


def test_a_result_is_read_as_the_return_annotation_says() -> None:
    def early() -> "list[tuple[int, str]]": ...  # type: ignore[empty-body]  # only its annotation counts

    def only_for_checkers() -> "Nonsense": ...  # type: ignore[name-defined]  # noqa: F821 - nothing has this name

    assert Codec(early).decode_result(b'[[1,"a"]]') == [(1, "a")]
    assert Codec(only_for_checkers).decode_result(b'{"a":1}') == {"a": 1}
    assert Codec(lambda: None).decode_result(b"null") is None
    with pytest.raises(UndecodablePayload, match=r"return annotation of .*early"):
        Codec(early).decode_result(b'{"a":1}')
