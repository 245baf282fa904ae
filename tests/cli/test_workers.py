"""`reprieve workers`: which worker processes are alive, and what they do."""

import asyncio

from reprieve import clock
from reprieve.stores.open import open_store
from reprieve.stores.protocol import Heartbeat
from tests.cli.shell import answer, complaint, reprieve

URL = "sqlite:///jobs.db"
STORE = ("--store", URL)


def send(*heartbeats: Heartbeat) -> None:
    """Send heartbeats."""

    async def work() -> None:
        store = open_store(URL)
        for heartbeat in heartbeats:
            await store.heartbeat(heartbeat)
        await store.close()

    asyncio.run(work())


def opening(now: int, session: str = "mail-3-1", lease: float = 600.0) -> Heartbeat:
    return Heartbeat(
        session=session,
        now=now,
        lease=lease,
        slots=20,
        queues=("mail", "reports"),
        is_new=True,
        host="mail-3",
        pid=4_711,
        version="1.2.3",
        tasks=("shop.send", "shop.render"),
    )


def test_a_worker_is_listed_with_all_that_is_known_of_it() -> None:
    now = clock.now()
    beat = Heartbeat(
        session="mail-3-1", now=now - 2_000, lease=600, slots=20, prefetch=250, running=7, queues=("mail",)
    )
    send(opening(now - 7_200_000), beat)
    header, row = reprieve("workers", *STORE).stdout.splitlines()
    columns = [
        "session",
        "host",
        "pid",
        "version",
        "queues",
        "tasks",
        "running",
        "slots",
        "ahead",
        "since",
        "heartbeat",
    ]
    assert header.split() == columns
    assert row.split()[:9] == ["mail-3-1", "mail-3", "4711", "1.2.3", "mail", "2", "7", "20", "250"]
    assert row.split()[9:11] == ["2h", "ago"]


def test_a_script_gets_every_field() -> None:
    now = clock.now()
    send(opening(now))
    assert answer("workers", *STORE) == {
        "workers": [
            {
                "id": "mail-3-1",
                "host": "mail-3",
                "pid": 4_711,
                "version": "1.2.3",
                "queues": ["mail", "reports"],
                "tasks": ["shop.send", "shop.render"],
                "slots": 20,
                "prefetch": 0,
                "running": 0,
                "since": now,
                "heartbeatAt": now,
            }
        ]
    }


def test_a_worker_that_has_ended_or_whose_lease_is_over_is_not_listed() -> None:
    now = clock.now()
    ended = Heartbeat(session="ended", now=now, lease=0, slots=20)
    send(opening(now - 60_000, "killed", 15.0), opening(now, "ended"), ended, opening(now, "alive"))
    assert [worker["id"] for worker in answer("workers", *STORE)["workers"]] == ["alive"]


def test_a_session_that_says_nothing_of_itself_is_listed_all_the_same() -> None:
    send(Heartbeat(session="plain", now=clock.now(), lease=600, slots=3, is_new=True))
    _, row = reprieve("workers", *STORE).stdout.splitlines()
    assert row.split()[:3] == ["plain", "all", "0"]


def test_a_store_without_workers_says_so() -> None:
    send()
    result = reprieve("workers", *STORE)
    assert (result.stdout, result.stderr) == ("", "no workers\n")
    assert answer("workers", *STORE) == {"workers": []}


def test_a_store_that_does_not_exist_is_an_error() -> None:
    assert "does not exist" in complaint("workers", *STORE, status=3)
