"""Where the bytes of releases are kept: `tests/golden/0.1.0/` and so on; `python -m scripts.golden` writes them."""

import re
from pathlib import Path

FOLDER = Path(__file__).parent
RELEASES = FOLDER.parent / "releases"
"""The archives of releases: what their wheels hold, but for `reprieve.testing`, packed more tightly."""


def releases() -> list[Path]:
    """Return the folders of the releases whose bytes are kept, the oldest first."""
    return sorted((path for path in FOLDER.iterdir() if re.fullmatch(r"\d+\.\d+\.\d+", path.name)), key=_version)


def archives() -> list[Path]:
    """Return the archives of the releases that are kept, the oldest first."""
    return sorted(RELEASES.glob("reprieve-*.tar.xz"), key=_version)


def _version(path: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", path.name)[:3]]
