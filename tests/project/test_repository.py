import ast
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

import reprieve

ROOT = Path(__file__).parents[2]
REQUIREMENTS = sorted((ROOT / "requirements").glob("*.txt"))
# Each with a letter in brackets, because this file is searched as well.
INDEX_HOSTS = re.compile(rb"\bpyp[i]\.(org|python\.org)\b|\bpythonhoste[d]\.org\b", re.IGNORECASE)
MACHINE_PATHS = re.compile(rb"(?<![\w.~}-])/(roo[t]|wor[k])(?![\w.-])")
LEFT_BY_TOOLS = re.compile(r"\.git|\.venv.*|\.node-.*|\.hypothesis|\..+_cache|\.coverage.*|__pycache__|dist|mutants")


def files_of_the_project() -> list[Path]:
    """List what git tracks; outside a checkout, every file that no tool left behind."""
    return [path for path in tracked_files() or untouched_by_tools() if path.is_file()]


def tracked_files() -> list[Path]:
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        return []
    git = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=False, capture_output=True, text=True)
    return [ROOT / name for name in git.stdout.split("\0") if name]


def untouched_by_tools() -> list[Path]:
    return [
        path
        for path in ROOT.rglob("*")
        if not any(LEFT_BY_TOOLS.fullmatch(part) for part in path.relative_to(ROOT).parts)
    ]


@pytest.mark.parametrize("forbidden", [INDEX_HOSTS, MACHINE_PATHS], ids=["index hosts", "machine paths"])
def test_no_file_names_the_machine_it_was_written_on(forbidden: re.Pattern[bytes]) -> None:
    files = files_of_the_project()
    assert files
    assert [str(path.relative_to(ROOT)) for path in files if forbidden.search(path.read_bytes())] == []


@pytest.mark.parametrize("path", REQUIREMENTS, ids=lambda path: path.name)
def test_every_requirement_is_pinned_and_hashed(path: Path) -> None:
    lines = path.read_text().replace("\\\n", " ").splitlines()
    requirements = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
    pin = re.compile(r"[\w.-]+(\[[\w,-]+\])?==\S+( ; [^#]+?)?(\s+--hash=sha256:[0-9a-f]{64})+\s*")
    assert requirements
    assert [line for line in requirements if not pin.fullmatch(line)] == []


@pytest.mark.parametrize("path", REQUIREMENTS, ids=lambda path: path.name)
def test_requirements_name_no_index(path: Path) -> None:
    index = re.compile(r"://|--(extra-)?index|--find-links|--trusted-host|^-[if]\b", re.MULTILINE)
    assert not index.search(path.read_text())


def test_version_is_written_in_one_place() -> None:
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" not in pyproject["project"]
    source = (ROOT / pyproject["tool"]["hatch"]["version"]["path"]).read_text()
    assert re.findall(r'^__version__ = "(.+)"$', source, re.MULTILINE) == [reprieve.__version__]


def test_changelog_speaks_of_the_version() -> None:
    headings = re.findall(r"^## \[?([^\]\s]+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert {"Unreleased", reprieve.__version__} & set(headings)


def hidden_annotations(source: str) -> list[str]:
    """List the annotations of a class that name another member of it, which Python 3.14 takes for that member."""
    return [
        f"{parent.name}.{field.target.id}"
        for parent in ast.walk(ast.parse(source))
        if isinstance(parent, ast.ClassDef)
        for members in [{ast.unparse(node.target) for node in parent.body if isinstance(node, ast.AnnAssign)}]
        for field in parent.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if members & {name.id for name in ast.walk(field.annotation) if isinstance(name, ast.Name)}
    ]


def test_no_field_hides_the_module_that_an_annotation_names() -> None:
    assert hidden_annotations("class Duty:\n    logs: logs.Logs\n    board: int\n") == ["Duty.logs"]
    modules = sorted((ROOT / "src").rglob("*.py"))
    assert {path.name: found for path in modules if (found := hidden_annotations(path.read_text("utf-8")))} == {}
