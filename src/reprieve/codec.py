"""Arguments and results to bytes and back: JSON, and never pickle.

What a function says about its parameters is used to rebuild them: dataclasses, msgspec structs, pydantic models, dates,
decimals, enums and whatever else msgspec knows arrive as what they were. Without an annotation plain JSON arrives.
"""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from types import SimpleNamespace
from typing import Any, get_type_hints

import msgspec

from reprieve.errors import UndecodablePayload, UnserialisableArgument


class Payload(msgspec.Struct, array_like=True, frozen=True):
    """The arguments of one call."""

    args: list[Any]
    kwargs: dict[str, Any]


_decode = msgspec.json.Decoder(Payload).decode


class Codec:
    """Writes and reads the arguments of one function."""

    def __init__(self, function: Callable[..., object]) -> None:
        """Learn what the function expects."""
        self._function = function
        self._signature = inspect.signature(function)
        self._name = getattr(function, "__qualname__", repr(function))
        self._arguments = f"arguments of {self._name}"
        parameters = self._signature.parameters.values()
        self._is_plain = all(parameter.kind is parameter.POSITIONAL_OR_KEYWORD for parameter in parameters)
        self._most = len(parameters)
        self._required = sum(parameter.default is parameter.empty for parameter in parameters)

    @cached_property
    def _hints(self) -> dict[str, Any]:
        """What each parameter is, read when it is first needed: by then everything in the module has its name."""
        return {name: _hint_of(self._function, parameter) for name, parameter in self._signature.parameters.items()}

    @cached_property
    def _places(self) -> list[Any]:
        return list(self._hints.values())

    def encode(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> bytes:
        """Write the arguments of a call, after checking that the function can be called with them."""
        if not self._is_simple(args, kwargs):
            try:
                self._signature.bind(*args, **kwargs)
            except TypeError as error:
                message = f"{self._name} cannot be called so: {error}"
                raise UnserialisableArgument(message) from None
        return dump((args, kwargs), self._arguments)

    def decode(self, data: bytes) -> tuple[list[object], dict[str, object]]:
        """Read the arguments of a call, each as what its annotation says."""
        try:
            payload = _decode(data)
            if self._is_simple(payload.args, payload.kwargs):
                pairs = zip(payload.args, self._places, strict=False)
                return [_convert(value, hint) for value, hint in pairs], {}
            bound = self._signature.bind(*payload.args, **payload.kwargs)
            for name, value in bound.arguments.items():
                bound.arguments[name] = self._rebuild(name, value)
        except (msgspec.MsgspecError, NotImplementedError, TypeError, ValueError) as error:
            message = f"the payload does not fit {self._name}: {error}"
            raise UndecodablePayload(message) from error
        return list(bound.args), dict(bound.kwargs)

    def _is_simple(self, args: Sequence[object], kwargs: Mapping[str, object]) -> bool:
        """Whether the arguments fit at a glance, so that nothing has to be bound: most calls are such."""
        return self._is_plain and not kwargs and self._required <= len(args) <= self._most

    def _rebuild(self, name: str, value: object) -> object:
        parameter = self._signature.parameters[name]
        hint = self._hints[name]
        match parameter.kind:
            case inspect.Parameter.VAR_POSITIONAL:
                return tuple(_convert(item, hint) for item in value)  # type: ignore[attr-defined]  # bind makes it a tuple
            case inspect.Parameter.VAR_KEYWORD:
                return {key: _convert(item, hint) for key, item in value.items()}  # type: ignore[attr-defined]  # a dict
            case _:
                return _convert(value, hint)


def dump(value: object, what: str) -> bytes:
    """Write a value as JSON, or say which cannot be."""
    try:
        data = _encode(value)
    except (NotImplementedError, TypeError, ValueError, OverflowError, RecursionError) as error:
        message = f"the {what} cannot be stored as JSON: {error}; pass plain data, a dataclass, a struct or a model"
        raise UnserialisableArgument(message) from error
    # JSON has no word for them, so they are written as null, and would arrive as nothing: whoever wrote them must know.
    if b"null" in data and _has_no_number(msgspec.to_builtins(value, enc_hook=_encode_foreign)):
        message = f"there is a NaN or an infinity in the {what}, which JSON cannot hold; use None or text"
        raise UnserialisableArgument(message)
    return data


def _has_no_number(value: object) -> bool:
    """Whether a float somewhere in plain data is not a number, or not a finite one."""
    match value:
        case float():
            return not math.isfinite(value)
        case list() | tuple():
            return any(map(_has_no_number, value))
        case dict():
            return any(map(_has_no_number, value.values()))
        case _:
            return False


def load(data: bytes) -> object:
    """Read a value that `dump` wrote."""
    return msgspec.json.decode(data)


def _convert(value: object, hint: Any) -> object:  # noqa: ANN401 - an annotation is anything
    if hint is Any or hint is object:
        return value
    return msgspec.convert(value, hint, dec_hook=_decode_foreign)


def _encode_foreign(value: object) -> object:
    """Write what msgspec does not know: pydantic's models, by their own method."""
    dump_model = getattr(value, "model_dump", None)
    if callable(dump_model):
        return dump_model(mode="json")
    message = f"{type(value).__name__} is no plain data"
    raise NotImplementedError(message)


def _decode_foreign(kind: type, value: object) -> object:
    validate = getattr(kind, "model_validate", None)
    if callable(validate):
        return validate(value)
    message = f"{kind.__name__} cannot be rebuilt from JSON"
    raise NotImplementedError(message)


def _hint_of(function: Callable[..., object], parameter: inspect.Parameter) -> Any:  # noqa: ANN401 - as above
    if parameter.annotation is parameter.empty:
        return Any
    one = SimpleNamespace(__annotations__={parameter.name: parameter.annotation})
    try:
        return get_type_hints(one, getattr(inspect.unwrap(function), "__globals__", {}))[parameter.name]
    except (AttributeError, NameError, SyntaxError, TypeError):
        # An annotation that only a type checker can read: its parameter alone arrives as plain JSON.
        return Any


_encode = msgspec.json.Encoder(enc_hook=_encode_foreign).encode
