"""The shape of every value in the core: frozen, keyword-only, compared by content, camelCase in JSON."""

from typing import Any, dataclass_transform

import msgspec


class _Keywords(msgspec.StructMeta):
    """Make the fields of every record keyword-only; a struct does not inherit that option."""

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> Any:  # noqa: ANN401 - any option of a struct
        return super().__new__(mcs, name, bases, namespace, **{"kw_only": True, **options})


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class Record(msgspec.Struct, metaclass=_Keywords, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """An immutable value, compared by its fields.

    A record never refers to itself, so the garbage collector need not track it.
    """
