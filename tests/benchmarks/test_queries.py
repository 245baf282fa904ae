"""The benchmark of queries runs real processes, asks every query of its list, and writes what it found."""

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.queries.catalog import QUERIES

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
