"""Whatever text was supplied, no command and no log writes a character that a terminal obeys."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from reprieve import Policy, Reprieve
from reprieve.cli import main
from reprieve.testing import drain
from reprieve.worker.logs import _as_json
from reprieve.worker.logtext import TextRenderer
from tests.cli.shell import reprieve

HOSTILE = "red \x1b[31m \x9b31m \x07 \x7f \u202e back \r over"
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u202e]")


@pytest.fixture
def store(tmp_path: Path) -> str:
    """Return the URL of a store in which every text that can be supplied is hostile."""
    url = f"sqlite:///{tmp_path}/jobs.db"
    with Reprieve(url) as app:

        @app.task(name="send", policy=Policy(max_attempts=1))
        def send(text: str) -> None:
            raise ValueError(text)

        send.enqueue(HOSTILE)
        drain(app)
        send.enqueue(HOSTILE).cancel(by=HOSTILE, reason=HOSTILE)
    return url


def test_no_command_about_jobs_writes_control_characters(store: str) -> None:
    listed = reprieve("jobs", "list", "--store", store, "--quiet").stdout.split()
    assert len(listed) == 2
    commands = [["jobs", "list"], *(["jobs", "show", job_id] for job_id in listed)]
    for command in commands:
        for json in ([], ["--json"]):
            result = reprieve(*command, "--store", store, *json)
            assert "red" in result.stdout or command == ["jobs", "list"]
            assert not CONTROL.search(result.output), ascii(result.output)


@pytest.mark.parametrize("json", [[], ["--json"]])
def test_classifying_a_text_writes_no_control_characters(json: list[str]) -> None:
    result = reprieve("classify", HOSTILE, *json)
    assert not CONTROL.search(result.output), ascii(result.output)


@pytest.mark.parametrize(
    "command", [["jobs", "list", "--store", HOSTILE], ["jobs", "show", HOSTILE], ["worker", HOSTILE], [HOSTILE]]
)
def test_no_error_repeats_control_characters(command: list[str]) -> None:
    for json in ([], ["--json"]):
        result = CliRunner().invoke(main, [*command, *json])
        assert result.exit_code
        assert not CONTROL.search(result.output), ascii(result.output)


@pytest.mark.parametrize("field", ["event", "errorReason", "traceback", "stack", "tenant", "note", "logger", "several"])
def test_no_line_of_a_log_has_control_characters(field: str) -> None:
    value: object = [HOSTILE] if field == "several" else HOSTILE
    event = {"event": "job failed", "level": "error", "timestamp": "", "jobId": "1", field: value}
    assert not CONTROL.search(TextRenderer(colours=False)(None, "", dict(event)))
    assert not CONTROL.search(_as_json(event))
