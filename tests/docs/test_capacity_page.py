"""The numbers on the page about capacity are those that were measured, and its formulas are on the safe side."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from reprieve.stores.redis import memory_check
from tests.docs.page import ROOT, code, table, text_of

PAGE = text_of("docs/operate/capacity.md")
RESULTS = json.loads((ROOT / "benchmarks/results/capacity.json").read_text("utf-8"))
STORES = {"Redis": "redis", "SQLite": "sqlite", "PostgreSQL": "postgres"}
KINDS = {
    "waiting": "waiting",
    "waiting, with a key": "with a key",
    "retrying after one failure": "retrying",
    "dead": "dead",
}
SIZES = {"200 B": "200", "1 KiB": "1024", "10 KiB": "10240"}


def number(cell: str) -> int:
    return int(cell.replace(",", ""))


def test_every_number_of_bytes_was_measured() -> None:
    rows = table(PAGE, "store", "job")
    assert len(rows) == len(STORES) * len(KINDS)
    for row in rows:
        measured = RESULTS["bytes"][STORES[row["store"]]][KINDS[row["job"]]]
        assert {size: number(row[size]) for size in SIZES} == {size: measured[name] for size, name in SIZES.items()}


def test_every_number_of_jobs_was_counted() -> None:
    rows = {row["payload of each job"]: number(row["jobs"]) for row in table(PAGE, "payload of each job")}
    assert rows == {size: RESULTS["filled"][name] for size, name in SIZES.items()}


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("size", SIZES.values())
def test_every_formula_is_above_what_was_measured_and_not_by_much(store: str, size: str) -> None:
    waiting, key, failed = (
        eval(code(row[store])[0], {"p": int(size)})  # noqa: S307 - our own page
        for row in table(PAGE, "", "Redis")
    )
    measured = {kind: sizes[size] for kind, sizes in RESULTS["bytes"][STORES[store]].items()}
    for formula, found in (
        (waiting, measured["waiting"]),
        (waiting + key, measured["with a key"]),
        (failed, max(measured["retrying"], measured["dead"])),
    ):
        assert found <= formula <= 1.5 * found


def test_the_levels_are_those_of_the_code() -> None:
    for text, level in (("from 80 %", memory_check.WARN_SHARE), ("from 90 %", memory_check.FULL_SHARE)):
        assert text in PAGE
        assert f"{level:.0%}".replace("%", " %") in text


def test_the_measurement_runs_on_every_store(tmp_path: Path) -> None:
    output = tmp_path / "capacity.json"
    command = [sys.executable, "-m", "benchmarks.capacity", "--scale", "0.01", "--output", str(output)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(output.read_text("utf-8"))["bytes"]
    assert found.keys() == set(STORES.values())
    assert all(sizes["10240"] > 10_240 for kinds in found.values() for sizes in kinds.values())
