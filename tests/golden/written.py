"""The values of all formats as this release writes them, and what it reads out of that."""

from reprieve.core.record import Record
from tests.golden.formats import FORMATS
from tests.golden.plain import plain


class Written(Record):
    """A value in its format."""

    packed: str
    """Its bytes, in hexadecimal digits."""
    value: object
    """What a release that knows the format reads, as JSON has it."""


def written() -> dict[str, Written]:
    """Return every value as this release writes it."""
    packed = {name: form.write().hex() for name, form in FORMATS.items()}
    return {name: Written(packed=data, value=read(name, data)) for name, data in packed.items()}


def read(name: str, packed: str) -> object:
    """Return what this release reads out of the bytes of a format, as JSON has it."""
    return plain(FORMATS[name].read(bytes.fromhex(packed)))
