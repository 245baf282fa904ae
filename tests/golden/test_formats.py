"""What this release stores has the bytes that it had, and what earlier releases stored is read as it was meant.

A format that changes on purpose needs a value of its own in `formats.py`, and bytes of the next release; the bytes of
released formats stay.
"""

from pathlib import Path

import msgspec

from reprieve.version import __version__
from tests.golden.formats import FORMATS, FRESH, FULL, JOBS
from tests.golden.plain import disagreements
from tests.golden.written import Written, read, written


def test_every_value_is_read_as_it_was_written() -> None:
    for name, job in JOBS.items():
        assert FORMATS[f"job/{name}"].read(FORMATS[f"job/{name}"].write()) == job
        assert FORMATS[f"redis job/{name}"].read(FORMATS[f"redis job/{name}"].write()) == job
    assert FORMATS["succeeded jobs"].read(FORMATS["succeeded jobs"].write()) == [FRESH, FULL]


def test_every_value_of_every_release_is_read_as_it_was_meant(folders: list[Path]) -> None:
    for folder in folders:
        for name, kept in decode(folder).items():
            assert disagreements(read(name, kept.packed), kept.value, f"{folder.name}: {name}") == []


def test_this_release_writes_the_bytes_that_it_has_always_written(folders: list[Path]) -> None:
    for folder in folders:
        if folder.name == __version__:
            assert written() == decode(folder), "a format has changed: see the first lines of this file"


def decode(folder: Path) -> dict[str, Written]:
    return msgspec.json.decode((folder / "formats.json").read_bytes(), type=dict[str, Written])
