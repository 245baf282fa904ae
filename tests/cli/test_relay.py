"""`reprieve relay`: brings what is there or runs on, ends in good order, and says what is wrong in one line."""

import asyncio
import json
import os
import pty
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from reprieve import Reprieve
from reprieve.stores.protocol import Filter
from tests.cli.files import foreign
from tests.cli.shell import process
from tests.servers.ports import free_port
from tests.servers.postgres import drop_schema

APP = """
from reprieve import Reprieve

app = Reprieve()

@app.task
def confirm(number: int) -> None: ...
"""
OUTBOX = "sqlite:///app.db"
PATIENCE = 30.0


@pytest.fixture(autouse=True)
def store(tmp_path: Path, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Let there be an app whose store and outbox the environment names."""
    (tmp_path / "shop.py").write_text(APP)
    foreign(tmp_path / "app.db")
    url = f"{redis_url}?prefix=cli{uuid4().hex[:12]}"
    monkeypatch.setenv("REPRIEVE_URL", url)
    monkeypatch.setenv("REPRIEVE_OUTBOX", OUTBOX)
    return url


def send(count: int) -> list[str]:
    with Reprieve() as app, closing(sqlite3.connect("app.db", isolation_level=None)) as connection:
        task = app.task(name="shop.confirm")(lambda number: None)
        connection.execute("begin immediate")
        handles = app.enqueue_many(task.using(connection=connection).call(number) for number in range(count))
        connection.execute("commit")
    return [handle.id for handle in handles]


async def arrived() -> int:
    async with Reprieve() as app:
        return sum((await app.store.tally("status", Filter(), app.clock.now())).counts.values())


def test_once_brings_what_is_there_and_says_how_much_that_was() -> None:
    send(3)
    done = process("relay", "shop:app", "--once")
    assert (done.returncode, done.stdout, done.stderr) == (0, "3 relayed\n", "")
    assert asyncio.run(arrived()) == 3
    again = process("relay", "shop:app", "--once", "--json")
    assert json.loads(again.stdout) == {"relayed": 0, "refused": 0}


def test_what_is_refused_is_said_and_can_be_taken_up_again() -> None:
    send(2)
    refusing = process("relay", "shop:app", "--once", REPRIEVE_LARGEST_PAYLOAD="1")
    assert (refusing.returncode, refusing.stdout) == (1, "0 relayed, 2 refused; reprieve doctor shows why\n")
    assert "payload_too_large" in refusing.stderr
    doctor = process("doctor", OUTBOX)
    assert re.search(r"^warn  outbox +0 waiting; 2 refused: payload_too_large: ", doctor.stdout, re.MULTILINE)
    assert process("relay", "shop:app", "--once").stdout == "0 relayed\n"
    assert process("relay", "shop:app", "--once", "--refused").stdout == "2 relayed\n"


def test_the_doctor_tells_of_the_outbox_that_the_settings_name() -> None:
    send(3)
    assert re.search(r"^ok    outbox +3 waiting, the first for \d s$", process("doctor").stdout, re.MULTILINE)


def test_on_a_terminal_it_shows_how_far_it_has_come() -> None:
    send(3)
    reader, writer = pty.openpty()
    command = (sys.executable, "-m", "reprieve", "relay", "shop:app", "--once")
    try:
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=writer, timeout=PATIENCE)
        shown = os.read(reader, 65_536).decode()
    finally:
        os.close(reader)
        os.close(writer)
    assert done.stdout == b"3 relayed\n"
    assert "100%" in shown


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
async def test_it_runs_until_a_signal_and_ends_in_good_order(number: signal.Signals) -> None:
    command = ("-m", "reprieve", "relay", "shop:app", "--json")
    relay = await asyncio.create_subprocess_exec(
        sys.executable, *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        for count in (2, 4):
            await asyncio.to_thread(send, 2)
            async with asyncio.timeout(PATIENCE):
                while await arrived() != count:  # noqa: ASYNC110 - another process brings them
                    await asyncio.sleep(0.02)
        os.kill(relay.pid, number)
        async with asyncio.timeout(PATIENCE):
            stdout, stderr = await relay.communicate()
    finally:
        if relay.returncode is None:
            relay.kill()
            await relay.wait()
    assert (relay.returncode, json.loads(stdout)) == (0, {"relayed": 4, "refused": 0})
    assert [json.loads(line)["event"] for line in stderr.splitlines()] == ["relay started", "relay stopped"]


def test_while_the_outbox_server_is_away_it_says_so_and_waits() -> None:
    url = f"postgresql://app@127.0.0.1:{free_port()}/app"
    once = process("relay", "shop:app", "--once", "--outbox", url)
    assert (once.returncode, once.stdout) == (1, "")
    assert re.fullmatch(
        r"error: the server at postgresql://\S+ cannot be reached; .+\n", once.stderr.splitlines(keepends=True)[-1]
    )


COMPLAINTS = {
    "no outbox": ({"REPRIEVE_OUTBOX": ""}, (), 2, "outbox from REPRIEVE_OUTBOX cannot be used"),
    "a wrong URL": (
        {},
        ("--outbox", "redis://localhost"),
        2,
        "no outbox for 'redis://localhost'; write sqlite:///app.db, postgresql://",
    ),
    "a store that joins by itself": ({}, ("--store", "sqlite:///jobs.db"), 2, "there is nothing to relay"),
    "a folder that is not there": ({}, ("--outbox", "sqlite:///no/app.db"), 1, "folder no does not exist"),
    "a store that is away": (
        {},
        ("--store", "redis://127.0.0.1:1/0"),
        1,
        "the server at redis://127.0.0.1:1/0 cannot be reached; check that it runs",
    ),
}


@pytest.mark.parametrize(("environ", "options", "status", "words"), COMPLAINTS.values(), ids=COMPLAINTS)
def test_what_is_wrong_is_said_in_one_line(
    environ: dict[str, str], options: tuple[str, ...], status: int, words: str
) -> None:
    done = process("relay", "shop:app", "--once", *options, **environ)
    assert (done.returncode, done.stdout) == (status, "")
    assert done.stderr.startswith("error: ")
    assert words in done.stderr


def test_an_app_without_an_outbox_is_told_how_to_name_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REPRIEVE_OUTBOX")
    done = process("relay", "shop:app")
    assert done.returncode == 2
    assert "the app has no outbox" in done.stderr


def test_a_schema_that_another_user_must_create_is_named(postgres_url: str, schema: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(f"create schema {schema}")
        admin.execute(f"create table {schema}.orders (title text)")
    done = process("relay", "shop:app", "--once", "--outbox", f"{postgres_url}?schema={schema}")
    assert done.returncode == 1
    assert f"schema {schema} holds tables of something else" in done.stderr


def test_a_layout_of_a_newer_release_is_refused(postgres_url: str, schema: str) -> None:
    url = f"{postgres_url}?schema={schema}"
    assert process("migrate", "up", url).returncode == 0
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(f"set search_path = {schema}")
        admin.execute("insert into schema_version (version, checksum) values (2, '')")
    done = process("relay", "shop:app", "--outbox", url)
    assert done.returncode == 1
    assert "upgrade Reprieve here" in done.stderr.splitlines()[-1]


@pytest.fixture
def schema(postgres_url: str) -> Iterator[str]:
    name = f"cli_{uuid4().hex[:12]}"
    yield name
    drop_schema(postgres_url, name)
