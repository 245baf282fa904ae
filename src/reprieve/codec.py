"""Arguments and results to bytes and back: JSON, and never pickle.

The annotations of a function are used to rebuild its arguments and its result: dataclasses, msgspec structs, pydantic
models, dates, decimals, enums and whatever else msgspec knows arrive as what they were. A value that would arrive as
another one is refused. Results are converted by the return annotation, and are plain JSON without one.
"""

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from types import NoneType
from typing import Any, Literal, TypeAlias

import msgspec

from reprieve.annotations import (
    ORDINARY,
    FittingTypes,
    fitting_types,
    hint_of,
    keywords_after,
    resolve,
    unreadable,
)
from reprieve.core.suggestion import suggest
from reprieve.errors import InvalidArgument, UndecodablePayload, UnserialisableArgument
from reprieve.json_data import dump, from_json_data, load
from reprieve.round_trip import difference


class Payload(msgspec.Struct, array_like=True, frozen=True):
    """The arguments of one call."""

    args: list[Any]
    kwargs: dict[str, Any]


_decode = msgspec.json.Decoder(Payload).decode

_UNREADABLE = (msgspec.MsgspecError, NotImplementedError, TypeError, ValueError)
"""What msgspec, this module and models raise for data that does not fit an annotation."""


_NEVER_NAN = frozenset({bool, int, str, NoneType})
"""Types of arguments in which there is no float."""

_CONTAINERS = frozenset({list, dict})
"""Types of arguments that may hold anything."""

_MAX_SHAPES = 64
"""Shapes of calls that a codec remembers; a function without annotations may be called with any number of types."""


_Proof: TypeAlias = Literal["types", "finite", "equal"]
"""What shows that a call arrives as it is: its types alone; that no number is a NaN; that the same is read back."""


class Codec:
    """Writes and reads the arguments of one function."""

    def __init__(self, function: Callable[..., object]) -> None:
        """Read the signature of the function."""
        self._function = function
        self._signature = inspect.signature(function)
        self._name = getattr(function, "__qualname__", repr(function))
        self._arguments = f"arguments of {self._name}"
        parameters = self._signature.parameters.values()
        self._is_plain = all(parameter.kind is parameter.POSITIONAL_OR_KEYWORD for parameter in parameters)
        self._most = len(parameters)
        self._required = sum(parameter.default is parameter.empty for parameter in parameters)
        self._keywords = keywords_after(list(parameters))
        self._fitting_shapes: dict[tuple[object, ...], _Proof] = {}
        """Shapes of calls that fit the signature and every annotation, and what is to be shown of their values.

        A shape is the types of the positional values, the keywords, and the types of their values.
        """

    @cached_property
    def _hints(self) -> dict[str, Any]:
        """What each annotation stands for, read on first use: by then every name of the module is defined."""
        return {name: hint_of(self._function, parameter) for name, parameter in self._signature.parameters.items()}

    @cached_property
    def _result_hint(self) -> Any:  # noqa: ANN401 - an annotation is anything
        annotation = self._signature.return_annotation
        return Any if annotation is self._signature.empty else resolve(self._function, annotation)

    @cached_property
    def _fitting_types(self) -> dict[str, FittingTypes]:
        """The types that fit each parameter without any conversion."""
        return {name: fitting_types(hint) for name, hint in self._hints.items()}

    @cached_property
    def _exact(self) -> dict[str, frozenset[type]]:
        return {name: types.exact for name, types in self._fitting_types.items()}

    @cached_property
    def _exact_by_position(self) -> list[frozenset[type]]:
        return list(self._exact.values())

    def unusable_parameter(self) -> tuple[str, str] | None:
        """Return a parameter that no call could give a value to, and why; None if there is none.

        A parameter with a default does not count, since calls may leave it out, nor does an annotation whose names are
        not defined yet.
        """
        for parameter in self._signature.parameters.values():
            if parameter.kind in ORDINARY and parameter.default is parameter.empty:
                reason = unreadable(hint_of(self._function, parameter))
                if reason:
                    return parameter.name, reason
        return None

    def encode(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> bytes:
        """Write the arguments of a call.

        Raises `UnserialisableArgument` if the function cannot be called with them or JSON cannot hold them, and
        `InvalidArgument` if one does not fit its annotation: a worker can read what is stored.
        """
        shape: tuple[object, ...] = tuple(map(type, args))
        if kwargs:
            shape = (*shape, *kwargs, *map(type, kwargs.values()))
        proof = self._fitting_shapes.get(shape) or self._proof_of(shape, args, kwargs)
        if proof is not None:
            data = dump((args, kwargs), self._arguments, may_hold_nan=proof == "finite")
            if proof != "equal":
                return data
            stored = _decode(data)
            if stored.args == [*args] and stored.kwargs == kwargs:
                return data
        sent = self._pairs(args, kwargs)
        for name, value in sent:
            types = self._fitting_types[name]
            if not types.may_hold(value):
                raise self._invalid(name, value)
        data = dump((args, kwargs), self._arguments)
        payload = _decode(data)
        for (name, value), (_, plain) in zip(sent, self._pairs(payload.args, payload.kwargs), strict=True):
            self._require_arrival(name, value, plain)
        return data

    def _require_arrival(self, name: str, value: object, plain: object) -> None:
        """Raise `InvalidArgument` if the plain data of a value is rebuilt as something else than the value."""
        try:
            arrived = self._convert(name, plain)
        except _UNREADABLE as error:
            raise self._invalid(name, value, str(error)) from error
        if value == plain == arrived:
            return
        changed = difference(value, arrived, name)
        if changed:
            expected = inspect.formatannotation(self._hints[name])
            message = (
                f"argument {name} of {self._name} would not arrive as it is: {changed}; annotate {name} with the type "
                f"that it has (now {expected}), or pass plain JSON"
            )
            raise InvalidArgument(message, parameter=name, expected=expected, got=type(value).__name__)

    def read(self, args: Sequence[str], kwargs: Mapping[str, str]) -> tuple[tuple[object, ...], dict[str, object]]:
        """Read arguments that a person typed: as JSON if they are JSON and that fits the annotation, else as text."""
        bound = self._bind(args, kwargs)
        for name, typed in bound.arguments.items():
            hint = self._hints[name]
            match self._signature.parameters[name].kind:
                case inspect.Parameter.VAR_POSITIONAL:
                    bound.arguments[name] = tuple(_read(text, hint) for text in typed)
                case inspect.Parameter.VAR_KEYWORD:
                    bound.arguments[name] = {key: _read(text, hint) for key, text in typed.items()}
                case _:
                    bound.arguments[name] = _read(typed, hint)
        return bound.args, bound.kwargs

    def decode(self, data: bytes) -> tuple[list[object], dict[str, object]]:
        """Read the arguments of a call, each as what its annotation says."""
        try:
            payload = _decode(data)
            if self._is_simple(payload.args, payload.kwargs):
                return list(map(self._convert, self._hints, payload.args)), {}
            bound = self._signature.bind(*payload.args, **payload.kwargs)
            for name, value in bound.arguments.items():
                bound.arguments[name] = self._rebuild(name, value)
        except _UNREADABLE as error:
            message = f"the payload does not fit {self._name}: {error}"
            raise UndecodablePayload(message) from error
        return list(bound.args), dict(bound.kwargs)

    def decode_result(self, data: bytes) -> object:
        """Read a result as what the function's return annotation says; raises `UndecodablePayload`."""
        try:
            return _convert(load(data), self._result_hint)
        except _UNREADABLE as error:
            message = f"it does not fit the return annotation of {self._name}: {error}"
            raise UndecodablePayload(message) from error

    def _is_simple(self, args: Sequence[object], kwargs: Mapping[str, object]) -> bool:
        """Return whether there are only positional arguments, and not too many: most calls, which need not be bound."""
        return self._is_plain and not kwargs and self._required <= len(args) <= self._most

    def _fits(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> bool:
        """Return whether a call fits the signature and every annotation by its types alone: most calls do."""
        if not self._is_bound(args, kwargs):
            return False
        for value, exact in zip(args, self._exact_by_position, strict=False):
            if type(value) not in exact:
                return False
        return all(type(value) in self._exact[name] for name, value in kwargs.items())

    def _proof_of(
        self, shape: tuple[object, ...], args: tuple[object, ...], kwargs: Mapping[str, object]
    ) -> _Proof | None:
        """Return what shows that a call arrives as it is, and remember it; None if each value has to be looked at."""
        if not self._fits(args, kwargs):
            return None
        types = {type(value) for value in (*args, *kwargs.values())}
        proof: _Proof = "types"
        if not types <= _NEVER_NAN:
            proof = "finite" if types.isdisjoint(_CONTAINERS) else "equal"
        if len(self._fitting_shapes) < _MAX_SHAPES:
            self._fitting_shapes[shape] = proof
        return proof

    def _is_bound(self, args: Sequence[object], kwargs: Mapping[str, object]) -> bool:
        """Return whether a call fits the signature for certain; if not, binding it tells."""
        if len(args) >= len(self._keywords):
            return False
        required, allowed = self._keywords[len(args)]
        return required <= kwargs.keys() <= allowed if kwargs else not required

    def _bind(self, args: Sequence[object], kwargs: Mapping[str, object]) -> inspect.BoundArguments:
        try:
            return self._signature.bind(*args, **kwargs)
        except TypeError as error:
            message = f"{self._name} cannot be called with these arguments: {self._unknown(kwargs) or error}"
            raise UnserialisableArgument(message) from None

    def _unknown(self, kwargs: Mapping[str, object]) -> str:
        """Return a sentence about the keywords that the function does not have; empty if it takes them all.

        A mistyped keyword is often why a required one is missing, so the error is about the mistyped one.
        """
        parameters = self._signature.parameters.values()
        if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
            return ""
        known = [parameter.name for parameter in parameters if parameter.kind in ORDINARY]
        unknown = [name for name in kwargs if name not in known]
        if not unknown:
            return ""
        return f"it has no parameter {', '.join(map(repr, unknown))}; {suggest(unknown[0], known, 'parameters')}"

    def _pairs(self, args: Sequence[object], kwargs: Mapping[str, object]) -> list[tuple[str, object]]:
        """Return the values of a call, each with the name of its parameter."""
        if self._is_bound(args, kwargs):
            return [*zip(self._hints, args, strict=False), *kwargs.items()]
        pairs: list[tuple[str, object]] = []
        for name, value in self._bind(args, kwargs).arguments.items():
            match self._signature.parameters[name].kind:
                case inspect.Parameter.VAR_POSITIONAL:
                    pairs += ((name, item) for item in value)
                case inspect.Parameter.VAR_KEYWORD:
                    pairs += ((name, item) for item in value.values())
                case _:
                    pairs.append((name, value))
        return pairs

    def _invalid(self, name: str, value: object, reason: str = "") -> InvalidArgument:
        expected = inspect.formatannotation(self._hints[name])
        got = type(value).__name__
        why = f" ({' '.join(reason.split())})" if reason else ""
        message = f"argument {name} of {self._name} must be {expected}, got {got}{why}"
        return InvalidArgument(message, parameter=name, expected=expected, got=got)

    def _rebuild(self, name: str, value: object) -> object:
        match self._signature.parameters[name].kind:
            case inspect.Parameter.VAR_POSITIONAL:
                return tuple(self._convert(name, item) for item in value)  # type: ignore[attr-defined]  # bind makes it a tuple
            case inspect.Parameter.VAR_KEYWORD:
                return {key: self._convert(name, item) for key, item in value.items()}  # type: ignore[attr-defined]  # a dict
            case _:
                return self._convert(name, value)

    def _convert(self, name: str, value: object) -> object:
        """Return plain data as what the annotation of a parameter says."""
        # As it was, also an int for a float.
        return value if type(value) in self._exact[name] else _convert(value, self._hints[name])


def _convert(value: object, hint: Any) -> object:  # noqa: ANN401 - an annotation is anything
    if hint is Any or hint is object:
        return value
    return msgspec.convert(value, hint, str_keys=True, dec_hook=from_json_data)


def _read(text: str, hint: Any) -> object:  # noqa: ANN401 - as above
    readings: list[object] = [text]
    with suppress(ValueError):
        readings.insert(0, json.loads(text))
    for reading in readings:
        with suppress(*_UNREADABLE):
            return _convert(reading, hint)
    return readings[0]
