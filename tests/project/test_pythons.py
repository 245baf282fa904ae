"""Which Pythons are found, and what is run on each: the scripts, with programs that only print what they are told."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOLS = ("sh", "grep", "sed", "paste")


class Machine:
    """A PATH with the tools of a shell, and with the interpreters that are put there."""

    def __init__(self, folder: Path) -> None:
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.home = folder / "home"
        self.home.mkdir()
        for tool in TOOLS:
            found = shutil.which(tool)
            assert found is not None
            self.bin.joinpath(tool).symlink_to(found)

    def put(self, name: str, says: str, folder: Path | None = None) -> Path:
        """Put a program there that prints what it is told to, whatever is asked of it."""
        program = (folder or self.bin) / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(f"#!/bin/sh\n{says}\n")
        program.chmod(0o755)
        return program

    def put_python(self, name: str, version: str, has: str = "venv", folder: Path | None = None) -> Path:
        return self.put(name, f"echo {version} {has}", folder)

    def run(self, *command: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": os.fspath(self.bin), "HOME": os.fspath(self.home), **variables}
        return subprocess.run(
            ["/bin/sh", *command], cwd=ROOT, env=environment, check=False, capture_output=True, text=True
        )

    def find(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return self.run("scripts/find-python", *arguments, **variables)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_default_is_python3_even_if_there_is_a_newer_one(machine: Machine) -> None:
    machine.put_python("python3", "3.12")
    machine.put_python("python3.13", "3.13")
    assert machine.find().stdout == "python3\n"


def test_newest_is_the_default_where_python3_is_too_old(machine: Machine) -> None:
    machine.put_python("python3", "3.9")
    machine.put_python("python3.11", "3.11")
    machine.put_python("python3.13", "3.13")
    assert machine.find().stdout == "python3.13\n"


def test_shim_that_does_not_run_is_no_python(machine: Machine) -> None:
    machine.put("python3", "echo 'command not found' >&2; exit 127")
    machine.put("python3.14", "exit 127")
    machine.put_python("python3.12", "3.12")
    assert machine.find().stdout == "python3.12\n"
    assert machine.find("--all").stdout == "3.14 -\n3.13 -\n3.12 python3.12\n3.11 -\n"


def test_interpreters_of_pyenv_are_found_behind_shims_that_do_not_run(machine: Machine) -> None:
    machine.put_python("python3", "3.11")
    machine.put("python3.13", "exit 127")
    versions = machine.home / ".pyenv" / "versions"
    behind = machine.put_python("python3.13", "3.13", folder=versions / "3.13.0" / "bin")
    assert machine.find("--all").stdout.splitlines()[1] == f"3.13 {behind}"
    elsewhere = machine.put_python("python3.12", "3.12", folder=machine.home / "env" / "versions" / "3.12.1" / "bin")
    found = machine.find("--all", PYENV_ROOT=os.fspath(machine.home / "env")).stdout.splitlines()
    assert found[1:3] == ["3.13 -", f"3.12 {elsewhere}"]


def test_named_python_is_taken_or_refused(machine: Machine) -> None:
    machine.put_python("python3", "3.12")
    machine.put_python("python3.13", "3.13")
    machine.put_python("python2", "2.7")
    assert machine.find(PYTHON="python3.13").stdout == "python3.13\n"
    for name in ("python2", "nowhere"):
        refused = machine.find(PYTHON=name)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert refused.stderr == f"reprieve: PYTHON={name} does not run, or is older than Python 3.11\n"


def test_python_without_venv_is_passed_over_and_told(machine: Machine) -> None:
    machine.put_python("python3", "3.12", has="bare")
    told = machine.find()
    assert told.returncode == 1
    assert told.stderr == (
        "reprieve: python3 cannot make a virtual environment; on Debian: apt-get install python3-venv\n"
    )
    machine.put_python("python3.11", "3.11")
    assert machine.find().stdout == "python3.11\n"


def test_machine_without_python_is_told_what_to_do(machine: Machine) -> None:
    told = machine.find()
    assert told.returncode == 1
    assert "install one, or name it: make PYTHON=/path/to/python3" in told.stderr


def matrix(machine: Machine, default: str, *others: str, make: str = "") -> subprocess.CompletedProcess[str]:
    """Run the matrix on a machine with these Pythons, with a make that writes down how it was called."""
    machine.put("make", f'echo "make $3${{4:+ $4}}${{2:+ [$2]}}"\n{make}')
    for version in others:
        machine.put_python(f"python{version}", version)
    return machine.run("scripts/pythons", machine.put("default", f"echo {default}"))


def test_all_tests_run_on_the_default_more_on_the_newest_and_some_between(machine: Machine) -> None:
    some = "tests/core tests/api tests/stores/sqlite tests/docs"
    more = f"{some} tests/cli tests/first_day tests/flows tests/relay tests/testing"
    ran = matrix(machine, "3.11", "3.11", "3.12", "3.13")
    assert ran.returncode == 0
    assert ran.stdout.splitlines() == [
        "reprieve: skipped, because there is no such Python here: 3.14",
        "reprieve: Python 3.11, the default: all tests",
        "make  [test]",
        f"reprieve: Python 3.13: {more}",
        f"make PYTHON=python3.13 TESTS={more} [test]",
        f"reprieve: Python 3.12: {some}",
        f"make PYTHON=python3.12 TESTS={some} [test]",
    ]


def test_one_python_alone_is_enough(machine: Machine) -> None:
    ran = matrix(machine, "3.13")
    assert ran.returncode == 0
    assert ran.stdout.splitlines() == [
        "reprieve: skipped, because there is no such Python here: 3.14 3.12 3.11",
        "reprieve: Python 3.13, the default: all tests",
        "make  [test]",
    ]


@pytest.mark.parametrize(
    "failing", ["", "PYTHON=python3.13", "PYTHON=python3.12"], ids=["default", "newest", "between"]
)
def test_failure_on_any_python_fails_the_whole(failing: str, machine: Machine) -> None:
    ran = matrix(machine, "3.11", "3.12", "3.13", make=f'[ "${{3:-}}" != "{failing}" ] || exit 2')
    assert ran.returncode == 2
