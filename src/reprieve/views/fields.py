"""A record as JSON with every field: an encoded record omits default values, and scripts need them."""

from typing import Any

import msgspec

from reprieve.core.record import Record


def all_fields(record: Record) -> dict[str, Any]:
    """Return all fields of a record, by their names in JSON; instants are in milliseconds."""
    return {
        field.encode_name: msgspec.to_builtins(getattr(record, field.name)) for field in msgspec.structs.fields(record)
    }
