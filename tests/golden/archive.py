"""The archive of a release: small enough to be kept, and complete enough to run its workers and commands."""

import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from zipfile import ZipFile

from reprieve.version import __version__

ROOT = Path(__file__).parents[2]
LEFT_OUT = "reprieve/testing/"
"""What neither a worker nor a command needs."""


def pack(folder: Path) -> Path:
    """Build the wheel of this release, and pack what it holds into an archive in the folder."""
    target = folder / f"reprieve-{__version__}.tar.xz"
    with tempfile.TemporaryDirectory() as place:
        build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", place]
        subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
        (wheel,) = Path(place).glob("*.whl")
        unpacked = Path(place) / "unpacked"
        with ZipFile(wheel) as archive:
            for name in archive.namelist():
                if not name.startswith(LEFT_OUT):
                    archive.extract(name, unpacked)
        with tarfile.open(target, "w:xz", preset=9) as archive:
            for path in sorted(unpacked.iterdir()):
                archive.add(path, path.name, filter=_anonymous)
    return target


def unpack(archive: Path, folder: Path) -> Path:
    """Unpack an archive; return the folder that has the package."""
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return folder


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Return an entry without the user and the time, so that the same code is the same archive."""
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    return entry
