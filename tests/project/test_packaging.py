"""What the package says about itself is true: dependencies, extras, links, licence, and what the archives hold."""

import ast
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from email import message_from_bytes
from pathlib import Path, PurePosixPath
from zipfile import ZipFile

import pytest

from reprieve.cli.doctor import EXTRAS

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
REPOSITORY = PROJECT["urls"]["Repository"]
DATA = {"tzdata"}
"""Packages that are read and not imported: zoneinfo finds its time zones in tzdata where the system has none."""

LINK = re.compile(r"\]\(([^)]+)\)")


def name_of(requirement: str) -> str:
    return re.split(r"[\[<>=!~; ]", requirement, maxsplit=1)[0]


def imported() -> set[str]:
    """Return the top-level names that the package imports, wherever in a file it does."""
    names: set[str] = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                names.add(node.module.partition(".")[0])
    return names


def built(target: str, folder: Path, source: Path = ROOT) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(folder)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    (archive,) = folder.iterdir()
    return archive


def description(wheel: Path) -> str:
    with ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        message = message_from_bytes(archive.read(name))
    assert message["Description-Content-Type"] == "text/markdown"
    return str(message.get_payload(decode=True), "utf-8")  # type: ignore[arg-type]  # bytes, where decoded


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built("sdist", tmp_path_factory.mktemp("sdist"))


def test_every_dependency_is_used() -> None:
    assert {name_of(each) for each in PROJECT["dependencies"]} - DATA <= imported()


def test_every_extra_is_used_and_no_package_is_asked_for_twice() -> None:
    extras = dict(PROJECT["optional-dependencies"])
    everything = re.fullmatch(r"reprieve\[(.+)\]", *extras.pop("all"))
    assert everything is not None
    assert set(everything[1].split(",")) == extras.keys()
    packages = [name_of(each) for extra in extras.values() for each in extra]
    assert set(packages) <= imported()
    assert len(set(packages)) == len(packages)


def test_the_doctor_knows_every_extra_and_no_other() -> None:
    extras = {name: packages for name, packages in PROJECT["optional-dependencies"].items() if name != "all"}
    assert {extra: package for package, (extra, _) in EXTRAS.items()} == {
        extra: name_of(package) for extra, (package,) in extras.items()
    }


def test_the_licence_says_whose_work_it_is() -> None:
    text = (ROOT / "LICENSE").read_text("utf-8")
    assert re.search(r"^ +Copyright 20\d\d \S", text, re.MULTILINE)
    assert "[yyyy]" not in text


def test_every_url_of_the_project_is_below_its_repository_and_leads_to_a_file() -> None:
    for url in PROJECT["urls"].values():
        assert url.startswith(REPOSITORY)
        if "/blob/main/" in url:
            assert (ROOT / url.partition("/blob/main/")[2]).is_file()


def test_every_link_of_the_readme_works_on_the_package_index(tmp_path: Path) -> None:
    text = description(built("wheel", tmp_path / "wheel"))
    links = LINK.findall(text)
    assert len(links) == len(LINK.findall((ROOT / "README.md").read_text("utf-8"))) > 5
    assert [link for link in links if not re.match(r"https?://|#", link)] == []
    inside = [re.fullmatch(rf"{re.escape(REPOSITORY)}/(blob|tree|raw)/main/([^#]+).*", link) for link in links]
    for found in filter(None, inside):
        assert (ROOT / found[2]).is_dir() is (found[1] == "tree")
        assert (ROOT / found[2]).exists()
    assert any(inside)


def test_the_source_archive_holds_every_file_of_the_project(sdist: Path) -> None:
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        return  # an unpacked archive: there is nothing to compare it with
    ours = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    git = subprocess.run(ours, cwd=ROOT, check=True, capture_output=True, text=True)
    with tarfile.open(sdist) as archive:
        held = {PurePosixPath(*PurePosixPath(name).parts[1:]) for name in archive.getnames()}
    tracked = {PurePosixPath(name) for name in git.stdout.split("\0") if name and (ROOT / name).is_file()}
    assert sorted(map(str, tracked - held)) == []
    assert sorted(map(str, held - tracked)) == ["PKG-INFO"]


def test_the_wheel_that_is_built_from_the_source_archive_says_the_same(sdist: Path, tmp_path: Path) -> None:
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "source", filter="data")
    (source,) = (tmp_path / "source").iterdir()
    ours, theirs = built("wheel", tmp_path / "ours"), built("wheel", tmp_path / "theirs", source)
    assert description(ours) == description(theirs)
    with ZipFile(ours) as one, ZipFile(theirs) as other:
        assert sorted(one.namelist()) == sorted(other.namelist())
