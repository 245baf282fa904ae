"""What a new user reads while things go wrong: few lines, each of them whole, in one form."""

import json
import re
import signal
import threading
from collections.abc import Callable

from reprieve.clock import ticks
from tests.first_day.terminal import UserTerminal
from tests.first_day.user import PATIENCE, Program, User
from tests.servers import postgres
from tests.servers.smtp import MailServer

SHOP = """
import smtplib
import time
from pathlib import Path

from reprieve import Reprieve

app = Reprieve()


@app.task(dependency="smtp")
def send_welcome(user_id: int) -> None:
    with smtplib.SMTP("127.0.0.1", PORT):
        pass


@app.task
def nap() -> None:
    Path("napping").touch()
    while not Path("awake").exists():
        time.sleep(0.02)
"""

LINE = re.compile(r"^\d\d:\d\d:\d\d [a-z ]{9} \S")


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Wait until a condition holds."""
    deadline = ticks() + PATIENCE
    while not condition():
        assert ticks() < deadline, what
        threading.Event().wait(0.05)


def test_an_outage_on_a_terminal_is_a_few_lines_and_one_traceback(user: User, mail_server: MailServer) -> None:
    user.write("shop.py", SHOP.replace("PORT", str(mail_server.port)))
    mail_server.stop()
    environ = {"REPRIEVE_URL": "sqlite:///jobs.db", "REPRIEVE_APP": "shop:app"}
    assert user.reprieve("enqueue", "send_welcome", "42", **environ).status == 0
    with user.running("worker", "-p", "2", "--log-style", "text", **environ) as worker:
        output = worker.wait_for(" silent for 1")
        assert worker.stop() == 0
    lines = [line for line in output.splitlines() if not line.startswith("    ")]
    assert all(LINE.match(line) for line in lines), output
    parked = [line for line in lines if " parked " in line]
    # Ten seconds, about ten attempts: the first, and one after ten seconds.
    assert len(parked) == 2, output
    assert parked[0].endswith("Connection refused; waits for smtp, next try in 1s (spared, 0/10 charged)")
    assert re.search(
        r"shop\.send_welcome [0-9a-f]{8}  Connection refused; smtp silent for 1\ds, next try in", parked[1]
    )
    assert output.count("Traceback (most recent call last)") == 1


def test_an_outage_of_the_store_is_told_once_by_the_whole_worker(user: User) -> None:
    user.write("shop.py", SHOP)
    with postgres.own() as server:
        environ = {"REPRIEVE_URL": server.url, "REPRIEVE_APP": "shop:app"}
        with user.running("worker", "-p", "3", **environ) as worker:
            worker.wait_for("worker started")
            assert user.reprieve("enqueue", "nap", **environ).status == 0
            wait_until((user.folder / "napping").exists, "the job did not start")
            server.kill()
            worker.wait_for("store unavailable")
            threading.Event().wait(8.0)  # longer than a child leaves it to the supervisor to speak
            server.start()
            worker.wait_for("store is back")
            user.write("awake", "")
            assert worker.stop() == 0
        assert [entry["event"] for entry in entries(worker) if "store" in entry["event"]] == [
            "store unavailable",
            "store is back",
        ]


def entries(worker: Program) -> list[dict[str, str]]:
    """Return the lines of a worker, each of which is JSON."""
    return [json.loads(line) for line in worker.output.splitlines()]


def test_ctrl_c_names_the_jobs_that_the_worker_waits_for(user: User) -> None:
    user.write("shop.py", SHOP)
    environ = {"REPRIEVE_URL": "sqlite:///jobs.db", "REPRIEVE_APP": "shop:app"}
    job_id = user.reprieve("enqueue", "nap", "--json", **environ).document["id"]
    with user.running("worker", "-p", "1", "--log-style", "text", **environ) as worker:
        wait_until((user.folder / "napping").exists, "the job did not start")
        worker.process.send_signal(signal.SIGINT)
        worker.wait_for(
            f"worker stopping: waiting up to 30s for 1 job (shop.nap {job_id[-8:]}); Ctrl-C again gives it back now"
        )
        worker.process.send_signal(signal.SIGINT)
        worker.wait_for(f"worker stopping: giving 1 job back now (shop.nap {job_id[-8:]})")
        user.write("awake", "")
        assert worker.process.wait(PATIENCE) == 0


def test_a_lifespan_that_fails_shows_only_its_own_exception(user: User) -> None:
    user.write(
        "shop.py",
        SHOP + "\n\n@app.lifespan\nasync def resources():\n    raise ConnectionError('provider down')\n    yield\n",
    )
    # As for a user who has not installed the extra.
    user.write("uvloop.py", "raise ImportError('no uvloop')")
    with user.running("worker", "shop:app", "-p", "1", REPRIEVE_URL="sqlite:///jobs.db") as worker:
        assert worker.process.wait(PATIENCE) == 1
    assert "provider down" in worker.output
    assert "uvloop" not in worker.output


def test_colours_are_for_terminals_and_no_color_forbids_them(user: User) -> None:
    user.write("shop.py", SHOP)
    with UserTerminal(user) as terminal:  # sets NO_COLOR
        terminal.type("reprieve worker shop:app -p 1 --store sqlite:///jobs.db")
        terminal.wait_for("info      worker started: shop:app")
        assert "\x1b[" not in terminal.screen
