"""Keep the bytes of this release for the tests of later ones: `python -m scripts.golden`, once, when it is released.

Writes `tests/golden/VERSION/` - every format, and a copy of a store of each kind - and the code to `tests/releases/`.
Refuses to change what is kept of a release, unless it is told to with `--again`.
"""

import argparse
import shutil
import sys
from pathlib import Path

from reprieve.version import __version__
from tests.golden import archive, generate
from tests.golden.places import FOLDER, RELEASES

ROOT = Path(__file__).parents[1]
MAX_ARCHIVE_BYTES = 600_000


def main() -> None:
    """Write everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--again", action="store_true", help="replace what is kept of this version")
    folder = FOLDER / __version__
    if folder.exists() and not parser.parse_args().again:
        sys.exit(f"{folder} is kept already; a release never changes its bytes")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    generate.write_formats(folder)
    generate.write_stores(folder)
    RELEASES.mkdir(exist_ok=True)
    written = [*sorted(folder.iterdir()), archive.pack(RELEASES)]
    for file in written:
        print(f"{file.stat().st_size:>9,} {file.relative_to(ROOT)}")
    if written[-1].stat().st_size > MAX_ARCHIVE_BYTES:
        sys.exit(f"the archive is larger than {MAX_ARCHIVE_BYTES:,} bytes")


if __name__ == "__main__":
    main()
