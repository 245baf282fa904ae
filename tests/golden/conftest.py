"""The bytes of releases; those of this one, written now, as long as none are kept."""

from pathlib import Path

import pytest

from reprieve.version import __version__
from tests.golden import generate
from tests.golden.places import releases


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return the folder of each release."""
    kept = releases()
    if kept:
        return kept
    folder = tmp_path_factory.mktemp("golden") / __version__
    folder.mkdir()
    generate.write_formats(folder)
    generate.write_stores(folder)
    return [folder]
