"""The shape of every value in the core: frozen, keyword-only, compared by content, camelCase in JSON."""

from typing import Any, dataclass_transform

import msgspec


class _Keywords(msgspec.StructMeta):
    """Makes the fields of every record keyword-only, which a struct would not inherit by itself."""

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> Any:  # noqa: ANN401 - whatever a struct takes
        return super().__new__(mcs, name, bases, namespace, **{"kw_only": True, **options})


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class Record(msgspec.Struct, metaclass=_Keywords, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """A value: what it is made of is all that it is.

    Nothing in it leads back to it, so the garbage collector need not look for cycles.
    """
