"""What the page about retention says in numbers is what the code does."""

import re

from reprieve.config import Settings
from reprieve.core.duration import seconds
from reprieve.stores.postgres import prune as postgres
from reprieve.stores.protocol import KEY_RETENTION_SECONDS, NAMES_INTERVAL_SECONDS, Pruned, Retention
from reprieve.stores.sqlite import prune as sqlite
from reprieve.worker import pruning
from tests.docs.page import ROOT, code, table, text_of

PAGE = text_of("docs/operate/retention.md")
ROWS = {row["what"]: row for row in table(PAGE, "what", "kept")}
RETENTION = Retention(now=0)


def lua_number(script: str, pattern: str) -> int:
    found = re.search(pattern, (ROOT / f"src/reprieve/stores/redis/lua/{script}.lua").read_text("utf-8"))
    assert found is not None
    return int(found[1])


def test_everything_that_is_pruned_has_a_row() -> None:
    words = " ".join(ROWS)
    counted = set(Pruned.__struct_fields__) - {"has_more"}
    assert [kind for kind in counted if kind not in words] == []


def test_the_settings_are_those_that_exist() -> None:
    assert code(ROWS["succeeded jobs"]["setting"]) == ["succeeded_kept", "succeeded_kept_for"]
    retained = {name for name in Settings.__struct_fields__ if "kept" in name}
    assert code(ROWS["events, the history of failures"]["setting"]) == ["events_kept_for", "events_kept"]
    named = {
        name for what in ("succeeded jobs", "events, the history of failures") for name in code(ROWS[what]["setting"])
    }
    assert retained == named, "a new setting needs its row"


def test_every_number_is_that_of_the_code() -> None:
    for text, number in (
        ("every ten seconds", pruning.PRUNE_INTERVAL_SECONDS == 10),
        ("the last 1,000 of each queue, and those at most 1 day", (Settings().succeeded_kept == 1_000)),
        ("at most 1 day", Settings().succeeded_kept_for == seconds("1d")),
        ("| cancelled jobs | 7 days |", RETENTION.cancelled_for == seconds("7d")),
        ("| 7 days; on Redis", RETENTION.events_for == Settings().events_kept_for == seconds("7d")),
        (
            "the last 100,000",
            Settings().events_kept == RETENTION.events == lua_number("events", r"MAX_EVENTS = (\d+)") == 100_000,
        ),
        ("at least 1 day from the enqueue", seconds("1d") == KEY_RETENTION_SECONDS),
        ("30 days after the last such failure", RETENTION.failures_for == seconds("30d")),
        ("2,000 at the most", RETENTION.failures == 2_000),
        ("| 400 days |", RETENTION.audit_for == seconds("400d")),
        ("10 minutes at least on PostgreSQL", postgres.REPEATABLE_MS == 600_000),
        ("at most 1,000 entries", lua_number("prune", r"MAX_ENTRIES = (\d+)") == 1_000),
        ("2,000 rows of each kind", sqlite.MAX_ROWS == postgres.MAX_ROWS == 2_000),
        ("every ten minutes", seconds("10m") == NAMES_INTERVAL_SECONDS),
        ("500 at a time", postgres.MAX_NAMES == lua_number("forget_names", r"MAX_NAMES = (\d+)") == 500),
    ):
        assert text in PAGE
        assert number, text
