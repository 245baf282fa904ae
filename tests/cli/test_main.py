"""The frame of the command line: lazy commands, clear errors, quiet ends."""

import json
import os
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner, Result

from reprieve import __version__
from reprieve.cli import main
from reprieve.cli.exit import status_of
from reprieve.cli.group import LazyCommand, Root
from reprieve.cli.main import COMMANDS
from reprieve.cli.store import choose, store_options
from reprieve.errors import (
    AmbiguousId,
    AmbiguousTask,
    ConcurrentModification,
    InvalidRetryState,
    InvalidSetting,
    InvalidUrl,
    JobNotFound,
    MaxRetriesExceeded,
    ReprieveError,
    StoreFull,
    StoreNotFound,
    UnknownTask,
    ValidationError,
)
from tests.cli.shell import complaint, process, reprieve

HEAVY = ("rich", "asyncio", "sqlite3", "msgspec", "reprieve.core", "reprieve.stores", "reprieve.config")
NESTED = [["presets", "list"], ["presets", "show"], ["presets", "plot"]]
NESTED += [["migrate", "status"], ["migrate", "up"], ["migrate", "sql"]]


def imported_by(*arguments: str) -> set[str]:
    """Return which of the heavy modules a command has imported when it ends."""
    program = (
        "import sys\n"
        "from reprieve.cli import main\n"
        "try:\n"
        f"    main({list(arguments)!r}, prog_name='reprieve')\n"
        "finally:\n"
        f"    print(*(name for name in {HEAVY!r} if name in sys.modules), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60)
    assert "Usage: reprieve" in done.stdout
    return set(done.stderr.split())


@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS), *NESTED], ids=" ".join)
def test_help_imports_nothing_heavy(command: list[str]) -> None:
    assert imported_by(*command, "--help") == set()


def test_the_look_at_imports_sees_them() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "reprieve", "presets", "list"],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "rich.table" in done.stderr


def test_help_lists_every_command_with_its_line() -> None:
    output = " ".join(reprieve("--help").stdout.split())
    for name, entry in COMMANDS.items():
        assert f"{name} {entry.help}" in output


@pytest.mark.parametrize("name", COMMANDS)
def test_the_line_in_the_list_is_the_first_of_the_command(name: str) -> None:
    command = COMMANDS[name].load()
    assert command.name == name
    assert command.get_short_help_str(limit=200) == COMMANDS[name].help


@pytest.mark.parametrize("arguments", [[], ["-h"], ["--help"]], ids=" ".join)
def test_without_arguments_the_help_is_printed(arguments: list[str]) -> None:
    assert reprieve(*arguments).stdout.startswith("Usage: reprieve [OPTIONS] COMMAND")


def test_a_group_without_a_command_says_what_there_is() -> None:
    assert "plot" in reprieve("presets").stdout


def test_the_package_can_be_run_as_a_module() -> None:
    done = process("--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Usage: reprieve ")


def test_the_version_is_told_on_one_line() -> None:
    told = reprieve("--version").stdout
    assert told == reprieve("version").stdout
    assert told.startswith(f"reprieve {__version__} (Python {sys.version.split()[0]}, SQLite 3.")
    assert len(told.splitlines()) == 1


# errors


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ReprieveError, 1),
        (StoreFull, 1),
        (ValidationError, 2),
        (InvalidSetting, 2),
        (InvalidUrl, 2),
        (JobNotFound, 3),
        (StoreNotFound, 3),
        (UnknownTask, 3),
        (AmbiguousId, 2),
        (AmbiguousTask, 2),
        (ConcurrentModification, 4),
        (InvalidRetryState, 4),
        (MaxRetriesExceeded, 4),
    ],
)
def test_every_error_has_its_status(error: type[ReprieveError], status: int) -> None:
    assert status_of(error("what happened; what to do")) == status
    result = run_failing(error("what happened; what to do"))
    assert (result.exit_code, result.stdout) == (status, "")
    assert result.stderr == "error: what happened; what to do\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["dance"],
        ["--colour"],
        ["demo", "--jobs", "0"],
        ["demo", "--jobs", "many"],
        ["presets", "show"],
        ["presets", "show", "nonsense"],
        ["presets", "show", "swift", "patient"],
        ["classify"],
        ["completion", "tcsh"],
        ["migrate", "down"],
        ["doctor", "--no-such-option"],
    ],
    ids=" ".join,
)
def test_wrong_usage_is_answered_with_a_line_and_status_2(arguments: list[str]) -> None:
    complaint(*arguments, status=2)


def test_a_command_that_is_nearly_one_is_answered_with_it() -> None:
    assert "did you mean presets?" in complaint("preset", status=2)
    assert "did you mean status?" in complaint("migrate", "statsu", status=2)
    assert "the commands are status, up, sql" in complaint("migrate", "dance", status=2)


def test_usage_errors_say_where_help_is() -> None:
    assert complaint("classify", status=2).endswith("(see reprieve classify --help)")


def test_with_json_errors_are_json_as_well() -> None:
    result = reprieve("presets", "show", "nonsense", "--json", status=2)
    assert result.stdout == ""
    error = json.loads(result.stderr)["error"]
    assert error["code"] == "unknown_preset"
    assert "there is no preset 'nonsense'" in error["message"]
    usage = json.loads(reprieve("version", "--json", "--nonsense", status=2).stderr)
    assert usage["error"]["code"] == "usage_error"


def test_an_argument_after_the_dashes_is_no_option() -> None:
    result = reprieve("presets", "show", "--", "--json", status=2)
    assert result.stderr.startswith("error: there is no preset '--json'")


def test_an_error_stays_on_its_line_and_moves_no_cursor() -> None:
    result = run_failing(ReprieveError("one\ntwo\x1b[2J \x07three"))
    assert result.stderr == "error: one two [2J three\n"


def test_a_bug_shows_itself() -> None:
    assert isinstance(run_failing(RuntimeError("a bug")).exception, RuntimeError)


def run_failing(error: BaseException) -> Result:
    """Run a command line whose only command raises."""

    def fail() -> None:
        raise error

    root = Root({}, name="reprieve")
    root.add_command(click.Command("fail", callback=fail))
    return CliRunner().invoke(root, ["fail"])


# ends


def test_control_c_ends_quietly_with_130() -> None:
    result = run_failing(KeyboardInterrupt())
    assert (result.exit_code, result.output.strip()) == (130, "")


def test_an_interrupted_process_leaves_no_traceback() -> None:
    program = (
        "import signal, sys\n"
        "from reprieve.cli import main\n"
        "class Pressed:\n"
        "    def read(self):\n"
        "        signal.raise_signal(signal.SIGINT)\n"
        "        return ''\n"
        "sys.stdin = Pressed()\n"
        "main(['classify', '-'], prog_name='reprieve')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (130, "", "")


def test_a_reader_that_leaves_early_is_no_error() -> None:
    command = f"{sys.executable} -m reprieve presets list --json | head -c 1"
    done = subprocess.run(["sh", "-c", command], check=True, capture_output=True, timeout=60)
    assert (done.stdout, done.stderr) == (b"[", b"")


def test_a_table_whose_reader_has_gone_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "reprieve", "presets", "list"],
        check=False,
        stdout=writing,
        stderr=subprocess.PIPE,
        timeout=60,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, b"")


def test_a_terminal_that_knows_little_gets_question_marks() -> None:
    done = process("presets", "show", "email", PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert "? 25 %" in done.stdout


def test_a_command_is_imported_by_its_place() -> None:
    assert LazyCommand("reprieve.cli.version:version", "").load().name == "version"
    assert main.get_command(click.Context(main), "version") is not None
    assert main.get_command(click.Context(main), "nonsense") is None


def test_a_command_about_something_in_the_store_takes_the_store_as_an_option() -> None:
    @click.command()
    @store_options
    def look(target: str | None, url: str | None) -> None:
        click.echo(choose(target, url).settings.url)

    assert CliRunner().invoke(look, ["--store", "sqlite:///mine.db"]).stdout == "sqlite:///mine.db\n"
    assert CliRunner().invoke(look, []).stdout == "sqlite:///reprieve.db\n"
