import subprocess
import sys
from pathlib import Path, PurePosixPath
from zipfile import ZipFile

import pytest

import reprieve

ROOT = Path(__file__).parents[2]
DIST_INFO = f"reprieve-{reprieve.__version__}.dist-info"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(directory)]
    subprocess.run(build, cwd=ROOT, check=True)
    (wheel,) = directory.iterdir()
    return wheel


def run_with(wheel: Path, directory: Path, code: str) -> str:
    """Run code that finds the unpacked wheel first, and neither the working directory nor the environment."""
    with ZipFile(wheel) as archive:
        archive.extractall(directory)
    code = f"import sys; sys.path.insert(0, {str(directory)!r}); {code}"
    command = [sys.executable, "-I", "-c", code]
    answer = subprocess.run(command, cwd=directory, check=True, stdout=subprocess.PIPE, text=True)
    return answer.stdout.strip()


def test_wheel_carries_the_version_of_the_package(wheel: Path) -> None:
    assert wheel.name == f"reprieve-{reprieve.__version__}-py3-none-any.whl"


def test_wheel_holds_every_file_of_the_package_and_nothing_else(wheel: Path) -> None:
    shipped = {PurePosixPath(name) for name in ZipFile(wheel).namelist()}
    source = {
        PurePosixPath(path.relative_to(ROOT / "src"))
        for path in (ROOT / "src" / "reprieve").rglob("*")
        if path.is_file() and path.parent.name != "__pycache__"
    }
    assert {path for path in shipped if path.parts[0] != DIST_INFO} == source
    assert PurePosixPath("reprieve/py.typed") in shipped


def test_wheel_carries_the_licence(wheel: Path) -> None:
    licence = ZipFile(wheel).read(f"{DIST_INFO}/licenses/LICENSE")
    assert licence == (ROOT / "LICENSE").read_bytes()


def test_wheel_imports_without_the_source_tree(wheel: Path, tmp_path: Path) -> None:
    imported = run_with(wheel, tmp_path, "import reprieve; print(reprieve.__file__)")
    assert Path(imported) == tmp_path / "reprieve" / "__init__.py"


def test_wheel_installs_a_command_that_loads(wheel: Path, tmp_path: Path) -> None:
    find = "from importlib.metadata import distribution; (entry,) = distribution('reprieve').entry_points"
    called = run_with(wheel, tmp_path, f"{find}; print(entry.name, callable(entry.load()))")
    assert called == "reprieve True"
