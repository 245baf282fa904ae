"""The benchmark of queries runs real processes, asks every query of its list, and writes what it found."""

import json
import subprocess
import sys
from pathlib import Path

from rich.console import Console

from benchmarks.queries.catalog import QUERIES
from benchmarks.queries.facts import Sizes
from benchmarks.queries.fill import Filler
from reprieve.clock import now
from reprieve.errors import ReprieveError
from reprieve.stores.open import open_store
from reprieve.stores.protocol import Filter

ROOT = Path(__file__).parents[2]


def test_a_small_measurement_fills_a_store_and_asks_every_query(tmp_path: Path) -> None:
    seconds = str(len(QUERIES) / 10)
    options = ["--store", "sqlite", "--jobs", "2000", "--pairs", "1", "--seconds", seconds, "--output", str(tmp_path)]
    command = [sys.executable, "-m", "benchmarks", "queries", *options]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    results = json.loads((tmp_path / "queries-sqlite.json").read_text("utf-8"))
    assert set(results["queries"]) <= {query.name for query in QUERIES}
    assert results["queries"]
    assert results["worker"]["quiet"][0]["rate"] > 0
    assert str(tmp_path) not in json.dumps(results)


def test_the_names_of_queries_differ() -> None:
    names = [query.name for query in QUERIES]
    assert len(names) == len(set(names))


async def test_every_query_is_answered() -> None:
    store = open_store("sqlite://:memory:")
    facts = await Filler(store, "", Sizes(jobs=500), now(), Console(quiet=True)).fill()
    for query in QUERIES:
        try:
            await query.ask(store, facts, now())
        except ReprieveError as error:
            error.add_note(query.name)
            raise
    counted = (await store.tally("status", Filter(), now())).counts
    assert (counted["dead"], counted["succeeded"], counted["scheduled"]) == (50, 50, 25)
    await store.close()
