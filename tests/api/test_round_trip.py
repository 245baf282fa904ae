"""What an enqueue accepts arrives as it was; what would arrive as something else is refused."""

import enum
import json
import types
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import InitVar, dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import Any, Generic, Literal, NamedTuple, Optional, TypedDict, TypeVar
from uuid import UUID, uuid4
from zoneinfo import ZoneInfo

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve import Reprieve
from reprieve.codec import Codec
from reprieve.errors import InvalidArgument, InvalidTask, ReprieveError, UnserialisableArgument

T = TypeVar("T")
BERLIN = ZoneInfo("Europe/Berlin")


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Size(enum.IntEnum):
    SMALL = 1
    LARGE = 2


class Access(enum.Flag):
    READ = 1
    WRITE = 2


class Mixed(enum.Enum):
    ONE = 1
    TWO = "two"


class UserId(int):
    pass


class Slug(str):
    __slots__ = ()


@dataclass
class Address:
    street: str
    number: int | None = None


@dataclass
class Home(Address):
    floor: int = 0


@dataclass(eq=False, frozen=True, slots=True)
class Stamp:
    at: datetime
    note: str = field(default="", compare=False)

    def __repr__(self) -> str:
        return f"Stamp({self.at!r}, {self.note!r})"


@dataclass
class Box(Generic[T]):
    content: T


@dataclass
class Counted:
    calls: int

    def __post_init__(self) -> None:
        self.calls += 1


@dataclass
class Seeded:
    seed: InitVar[int]
    total: int = 0

    def __post_init__(self, seed: int) -> None:
        self.total = seed


class Point(NamedTuple):
    x: int
    label: str = ""


class Movie(TypedDict):
    title: str


class Order(msgspec.Struct, rename="camel", tag="order"):
    order_id: int
    placed_at: datetime | None = None


class Refund(msgspec.Struct, rename="camel", tag="refund"):
    order_id: int


class Customer(pydantic.BaseModel):
    user_name: str = pydantic.Field(alias="userName")
    born: date | None = None
    id: UUID = pydantic.Field(default_factory=uuid4)

    @pydantic.computed_field  # type: ignore[prop-decorator]  # as pydantic's documents have it
    @property
    def initial(self) -> str:
        return self.user_name[:1]


class Exact(pydantic.BaseModel, strict=True, extra="forbid"):
    at: datetime
    sizes: tuple[Size, ...] = ()


class Login(pydantic.BaseModel):
    user: str
    password: pydantic.SecretStr


class Hidden(pydantic.BaseModel):
    shown: int
    note: str = pydantic.Field(default="", exclude=True)


class Cached(pydantic.BaseModel):
    number: int
    _seen: int = pydantic.PrivateAttr(default=0)


class Renamed(pydantic.BaseModel):
    name: str = pydantic.Field(validation_alias="readAs", serialization_alias="writtenAs")


class Change(pydantic.BaseModel):
    name: str | None = None
    email: str | None = None


class Wide(pydantic.BaseModel, extra="allow"):
    number: int


def of(annotation: object) -> Codec:
    """Return the codec of a function with one parameter, annotated so."""

    def task(value: Any) -> None: ...  # noqa: ANN401 - replaced below

    task.__annotations__["value"] = annotation
    return Codec(task)


def arrived(annotation: object, value: object) -> object:
    codec = of(annotation)
    (found,), _ = codec.decode(codec.encode((value,), {}))
    assert repr(codec.decode(codec.encode((), {"value": value}))) in (repr(([found], {})), repr(([], {"value": found})))
    return found


NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
OFFSETS = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
MOMENTS = st.datetimes(timezones=st.none() | OFFSETS | st.just(UTC)).map(lambda moment: moment.replace(fold=0))
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)

LEAVES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (int, st.integers()),
    (float, NUMBERS),
    (float, st.integers(-(2**53), 2**53)),
    (str, TEXTS),
    (bool, st.booleans()),
    (None, st.none()),
    (bytes, st.binary(max_size=10)),
    (bytearray, st.binary(max_size=10).map(bytearray)),
    (datetime, MOMENTS),
    (date, st.dates()),
    (time, st.times(timezones=st.none() | OFFSETS).map(lambda moment: moment.replace(fold=0))),
    (timedelta, st.timedeltas()),
    (Decimal, st.decimals(allow_nan=False)),
    (UUID, st.uuids()),
    (Path, TEXTS.filter(lambda text: "\0" not in text).map(Path)),
    (PurePosixPath, st.just(PurePosixPath("/srv/files"))),
    (Colour, st.sampled_from(Colour)),
    (Size, st.sampled_from(Size)),
    (Access, st.sampled_from([*Access, Access.READ | Access.WRITE])),
    (UserId, st.integers().map(UserId)),
    (Slug, TEXTS.map(Slug)),
    (Literal["a", 1, True], st.sampled_from(["a", 1, True])),
    (Address, st.builds(Address, TEXTS, st.none() | st.integers())),
    (Home, st.builds(Home, TEXTS, st.none() | st.integers(), st.integers())),
    (Stamp, st.builds(Stamp, MOMENTS, TEXTS)),
    (Box[date], st.dates().map(Box)),
    (Point, st.builds(Point, st.integers(), TEXTS)),
    (Movie, st.builds(lambda title: {"title": title}, TEXTS)),
    (Order, st.builds(Order, st.integers(), st.none() | MOMENTS)),
    (Order | Refund, st.builds(Order, st.integers()) | st.builds(Refund, st.integers())),
    (Customer, st.builds(lambda name, born: Customer(userName=name, born=born), TEXTS, st.none() | st.dates())),
    (Exact, st.builds(lambda at: Exact(at=at, sizes=(Size.LARGE,)), MOMENTS)),
    (Change, st.sampled_from([Change(), Change(name="a"), Change(name=None, email="b")])),
    (Wide, st.builds(lambda more: Wide.model_validate({"number": 1, "more": more}), TEXTS)),
    (Any, st.recursive(st.none() | st.booleans() | st.integers() | NUMBERS | TEXTS, st.lists, max_leaves=5)),
    (dict, st.dictionaries(TEXTS, st.lists(st.integers(), max_size=3), max_size=3)),
]

KEYS: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (str, TEXTS),
    (int, st.integers()),
    (float, NUMBERS.filter(lambda number: number != 0)),
    (date, st.dates()),
    (UUID, st.uuids()),
    (Colour, st.sampled_from(Colour)),
    (Size, st.sampled_from(Size)),
]


@st.composite
def typed_values(draw: st.DrawFn, depth: int = 2) -> tuple[Any, Any]:
    """Return an annotation, and a value of it."""
    annotation, values = draw(st.sampled_from(LEAVES))
    for _ in range(draw(st.integers(0, depth))):
        key, keys = draw(st.sampled_from(KEYS))
        several = st.lists(values, max_size=3)
        annotation, values = draw(
            st.sampled_from(
                [
                    (list.__class_getitem__(annotation), several),
                    (tuple.__class_getitem__((annotation, ...)), several.map(tuple)),
                    (tuple.__class_getitem__((int, annotation)), st.tuples(st.integers(), values)),
                    (dict.__class_getitem__((key, annotation)), st.dictionaries(keys, values, max_size=3)),
                    (types.GenericAlias(Box, annotation), values.map(Box)),
                ]
            )
        )
    return annotation, draw(values)


@given(typed_values())
def test_value_of_a_supported_type_arrives_as_it_was(typed: tuple[Any, Any]) -> None:
    annotation, value = typed
    found = arrived(annotation, value)
    assert type(found) is type(value)
    # Floats in lists and dicts are annotated so, and an int for one arrives as the equal float.
    assert repr(found) == repr(value) or found == value


@given(typed_values(), typed_values())
def test_value_of_any_type_is_refused_or_arrives_as_it_was(one: tuple[Any, Any], other: tuple[Any, Any]) -> None:
    annotation, value = one[0], other[1]
    try:
        found = arrived(annotation, value)
    except ReprieveError:
        return
    assert is_same(value, found), (annotation, value, found)


def is_same(sent: object, found: object) -> bool:
    """Return whether a value arrived as it was, or was plain JSON that its annotation has converted."""
    if sent == found or repr(sent) == repr(found) or is_plain(sent):
        return True
    match sent, found:
        case dict(), dict():
            return is_same([*sent, *sent.values()], [*found, *found.values()])
        case list() as items, (list() | tuple()) as arrivals:
            return len(items) == len(arrivals) and all(map(is_same, items, arrivals))
        case tuple(), tuple():
            return is_same([*sent], found)
        case Box(), Box():
            return is_same(sent.content, found.content)
        case _:
            return False


def is_plain(value: object) -> bool:
    """Return whether a value is plain JSON, which an annotation may convert."""
    try:
        return repr(json.loads(json.dumps(value))) == repr(value)
    except (TypeError, ValueError):
        return False


@pytest.mark.parametrize("kind", [set, frozenset])
@pytest.mark.parametrize("items", [set(), {1, 2}, {date(2030, 1, 1)}, {UUID(int=1)}, {("a", 1)}, {Colour.RED}])
def test_sets_arrive_as_they_were(kind: Any, items: set[Any]) -> None:  # noqa: ANN401 - either of the two
    item = next(iter(items), 1)
    annotation = kind[tuple[str, int] if isinstance(item, tuple) else type(item)]
    found = arrived(annotation, kind(items))
    assert found == items
    assert type(found) is kind


@pytest.mark.parametrize(
    ("annotation", "value", "reason"),
    [
        (Any, datetime(2030, 1, 1), "value is datetime and would arrive as str"),  # noqa: DTZ001 - as users have them
        (Any, {"at": [date(2030, 1, 1)]}, r"value\.at\[0\] is date and would arrive as str"),
        (Any, (1, 2), "value is tuple and would arrive as list"),
        (Any, [{1}], r"value\[0\] is set and would arrive as list"),
        (Any, b"a", "value is bytes and would arrive as str"),
        (Any, Decimal(1), "value is Decimal and would arrive as str"),
        (Any, Colour.RED, "value is Colour and would arrive as str"),
        (Any, {1: 2}, "a key of value is int and would arrive as str"),
        (Any, Address("a"), "value is Address and would arrive as dict"),
        (object, Customer(userName="a"), "value is Customer and would arrive as dict"),
        (list[Any], [(1,)], r"value\[0\] is tuple and would arrive as list"),
        (Box, Box((1,)), r"value\.content is tuple and would arrive as list"),
        (dict, {1: 2}, "a key of value is int and would arrive as str"),
        (dict[int | str, int], {1: 2}, "a key of value is int and would arrive as str"),
        (dict[int, int], {"1": 2}, "a key of value is str and would arrive as int"),
        (dict[bool, int], {True: 2}, "Expected `bool`, got `str`"),
        (list[int], (1, 2), "value is tuple and would arrive as list"),
        (Sequence[int], (1, 2), "value is tuple and would arrive as list"),
        (set[int], [1, 1], "value has equal items, of which a set keeps one"),
        (set[int], frozenset({1}), "value is frozenset and would arrive as set"),
        (list[bytes], ["test"], r"value\[0\] is str and would arrive as bytes"),
        (bytes, "test", "must be bytes, got str"),
        (bytes, bytearray(b"a"), "must be bytes, got bytearray"),
        (date, datetime(2030, 1, 1, tzinfo=UTC), "Invalid RFC3339 encoded date"),
        (int, True, "must be int, got bool"),
        (list[int], [True], "Expected `int`, got `bool`"),
        (list[float], [2**53 + 1], r"value\[0\] is int and would arrive as float"),
        (list[datetime], [datetime(1880, 1, 1, tzinfo=BERLIN)], r"value\[0\] would arrive as another datetime"),
        (datetime, datetime(1880, 1, 1, tzinfo=BERLIN), "value would arrive as another datetime"),
        (datetime, datetime(2030, 10, 27, 2, 30, fold=1), "value would arrive as another datetime"),  # noqa: DTZ001 - as above
        (time, time(12, tzinfo=BERLIN), "value would arrive as another time"),
        (Address, Home("a"), "value is Home and would arrive as Address"),
        (Address, {"street": "a", "numbr": 1}, "value would arrive without 'numbr', which Address does not have"),
        (Movie, {"title": "a", "year": 1967}, "value would arrive without 'year'"),
        (Order, {"type": "order", "order_id": 1}, "Object missing required field `orderId`"),
        (Order, {"type": "order", "orderId": 1, "x": 2}, "value would arrive without 'x', which Order does not have"),
        (Counted, Counted(1), r"value\.calls would arrive as another int"),
        (Seeded, Seeded(1), "dataclasses with `InitVar` fields are not supported"),
        (Mixed, Mixed.ONE, "Enums must contain either all str or all int values"),
        (datetime | str, "a", "may not contain more than one str-like"),
        (list[datetime | str], [], "may not contain more than one str-like"),
        (Literal[1], True, "Expected `int`, got `bool`"),
        (OrderedDict, OrderedDict(a=1), "OrderedDict cannot be rebuilt from JSON"),
    ],
)
def test_value_that_would_arrive_as_another_is_refused(annotation: object, value: object, reason: str) -> None:
    for args, kwargs in (((value,), {}), ((), {"value": value})):
        with pytest.raises(InvalidArgument, match=reason) as refused:
            of(annotation).encode(args, kwargs)
        assert refused.value.parameter == "value"


@pytest.mark.parametrize(
    ("annotation", "value", "reason"),
    [
        (
            Login,
            Login(user="a", password=pydantic.SecretStr("b")),
            r"Login\.password would arrive as another SecretStr",
        ),
        (Hidden, Hidden(shown=1, note="a"), r"Hidden\.note would arrive as another str"),
        (Renamed, Renamed.model_validate({"readAs": "a"}), "Renamed does not read its own JSON"),
        (Wide, Wide.model_validate({"number": 1, "at": date(2030, 1, 1)}), r"Wide\.at is date and would arrive as str"),
        (pydantic.SecretStr, pydantic.SecretStr("a"), "SecretStr is not plain data"),
        (complex, 1j, "complex is not plain data"),
    ],
)
def test_value_that_does_not_survive_json_is_refused(annotation: object, value: object, reason: str) -> None:
    with pytest.raises(UnserialisableArgument, match=reason) as refused:
        of(annotation).encode((value,), {})
    assert "secret" not in str(refused.value)
    with pytest.raises(UnserialisableArgument, match=reason):
        of(Box).encode((Box([value]),), {})


def test_private_attribute_that_was_changed_is_refused() -> None:
    model = Cached(number=1)
    assert arrived(Cached, model) == model
    model._seen = 2  # noqa: SLF001 - the point
    with pytest.raises(UnserialisableArgument, match=r"Cached\._seen would arrive as another int"):
        of(Cached).encode((model,), {})


def test_fields_of_a_model_that_were_not_set_arrive_unset() -> None:
    found = arrived(Change, Change(email="a"))
    assert isinstance(found, Change)
    assert found.model_dump(exclude_unset=True) == {"email": "a"}


def test_default_that_a_function_computed_arrives_as_it_was() -> None:
    customer = Customer(userName="Ana")
    assert arrived(list[Customer], [customer]) == [customer]


def test_time_of_the_repeated_hour_arrives_as_the_same_instant() -> None:
    sent = datetime(2030, 10, 27, 2, 30, fold=1, tzinfo=BERLIN)
    found = arrived(datetime, sent)
    assert isinstance(found, datetime)
    assert found.timestamp() == sent.timestamp()


@pytest.mark.parametrize(
    ("annotation", "value", "expected"),
    [
        (int, Size.LARGE, 2),
        (str, Slug("a"), "a"),
        (Any, Slug("a"), "a"),
        (tuple[int, str], Point(1, "a"), (1, "a")),
        (dict[str, int], OrderedDict(a=1), {"a": 1}),
        (Optional[float], 2**53 + 1, 2**53 + 1),  # noqa: UP045 - as many still write it
        (float, 10**400, 10**400),
    ],
)
def test_value_of_a_subclass_arrives_as_the_equal_built_in(annotation: object, value: object, expected: object) -> None:
    found = arrived(annotation, value)
    assert found == expected == value
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("annotation", "reason"),
    [
        (datetime | str, "may not contain more than one str-like"),
        (dict[str, datetime | UUID], "may not contain more than one str-like"),
        (Mixed, "Enums must contain either all str or all int values"),
        (Seeded, "dataclasses with `InitVar` fields are not supported"),
        (pydantic.SecretStr, "SecretStr cannot be rebuilt from JSON"),
        (Callable[[], None], "Callable cannot be rebuilt from JSON"),
        (Iterable[int], "Iterable cannot be rebuilt from JSON"),
        (Reprieve, "Reprieve cannot be rebuilt from JSON"),
        (Literal[b"a"], "Literal may only contain"),
    ],
)
def test_annotation_that_no_value_could_arrive_by_is_refused_where_the_task_is_declared(
    annotation: object, reason: str
) -> None:
    def send(number: int, value: Any) -> None: ...  # noqa: ANN401 - replaced below

    def send_later(number: int, value: Any = None, *more: Any, **other: Any) -> None: ...  # noqa: ANN401 - as above

    for task in (send, send_later):
        for name in task.__annotations__.keys() - {"number", "return"}:
            task.__annotations__[name] = annotation
    with Reprieve("sqlite://:memory:") as app:
        with pytest.raises(
            InvalidTask, match=f"parameter value of task .*send cannot be read back from JSON.*{reason}"
        ):
            app.task(send)
        # What a call may leave out is refused when a call has it.
        app.task(send_later).enqueue(1)


def test_annotation_that_is_defined_later_is_no_reason_to_refuse_a_task() -> None:
    def send(value: "Later", other: "list[Later]", box: Box["Later"]) -> None: ...  # type: ignore[name-defined]  # noqa: F821 - the point

    with Reprieve("sqlite://:memory:") as app:
        assert app.task(send).name.endswith("send")
