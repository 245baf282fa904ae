import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from benchmarks.flow import chart
from benchmarks.flow.figure import FIGURES, PROMISES, figures_on
from benchmarks.flow.measure import MEASURES, median, percentile
from benchmarks.flow.record import Record
from benchmarks.flow.side import PEERS
from benchmarks.flow.track import FOLDER, Track, counted, stamped

ROOT = Path(__file__).parents[2]
BY_NAME = figures_on("sqlite")


def test_a_quick_measurement_of_one_side_runs_real_processes_and_writes_its_results(tmp_path: Path) -> None:
    options = ["--quick", "--runs", "1", "--only", "fails", "--sides", "reprieve", "--output", str(tmp_path)]
    command = [sys.executable, "-m", "benchmarks", "flow", *options]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "fails, run 1: reprieve" in run.stderr
    assert "every job fails once" in run.stdout
    results = json.loads((tmp_path / "sqlite.json").read_text("utf-8"))
    assert results["figures"]["fails.rate"]["sides"]["reprieve"]["value"] > 0
    assert str(tmp_path) not in json.dumps(results)
    ET.parse(tmp_path / "sqlite.svg")  # noqa: S314 - our own file


@pytest.mark.parametrize("home", PEERS)
def test_every_peer_has_a_module_and_pins_to_install_it_by(home: str) -> None:
    for peer in PEERS[home]:
        kind, _, name = peer.environment.removeprefix(".").partition("-")
        module = {"venv": f"{name}.py", "node": f"{name}.cjs"}[kind]
        pins = {"venv": f"peers-{name}.txt", "node": f"node-{name}.json"}[kind]
        assert (ROOT / "benchmarks" / "flow" / "sides" / module).exists()
        assert (ROOT / "requirements" / pins).exists()


def test_a_worker_of_several_processes_is_one_command_that_says_so_or_one_command_each() -> None:
    known = {peer.name: peer for peer in PEERS["redis"]}
    assert [len(known["dramatiq"].commands(number)) for number in (1, 2)] == [1, 1]
    assert "--processes=2" in known["dramatiq"].commands(2)[0]
    assert [len(known["arq"].commands(number)) for number in (1, 2)] == [1, 2]


def test_there_are_peers_and_promises_on_the_same_kinds_of_stores() -> None:
    assert PEERS.keys() == PROMISES.keys()


def test_every_figure_belongs_to_a_measure() -> None:
    assert {figure.measure for figure in FIGURES} == MEASURES.keys()


@pytest.mark.parametrize("home", PROMISES)
def test_every_promise_is_about_a_figure(home: str) -> None:
    assert PROMISES[home].keys() <= figures_on(home).keys()


def test_a_figure_is_the_median_of_its_runs() -> None:
    record = Record("sqlite", {})
    for rate in (10.0, 30.0, 20.0):
        record.add("reprieve", {"process.one": rate})
    assert record.value("reprieve", BY_NAME["process.one"]) == 20
    assert record.value("huey", BY_NAME["process.one"]) is None


def test_what_must_not_happen_is_added_up_over_the_runs() -> None:
    record = Record("sqlite", {})
    for early in (0.0, 1.0, 0.0):
        record.add("reprieve", {"retry.early": early})
    assert record.value("reprieve", BY_NAME["retry.early"]) == 1


def test_a_ratio_above_one_is_in_our_favour_whichever_way_is_better() -> None:
    record = Record("sqlite", {})
    record.add("reprieve", {"process.one": 20.0, "latency.p50": 1.0})
    record.add("huey", {"process.one": 10.0, "latency.p50": 4.0})
    assert record.ratio("reprieve", "huey", BY_NAME["process.one"]) == 2
    assert record.ratio("reprieve", "huey", BY_NAME["latency.p50"]) == 4


def test_percentiles_are_values_that_were_seen() -> None:
    values = [float(number) for number in range(1, 201)]
    assert percentile(values, 50) == 100
    assert percentile(values, 99) == 198
    assert percentile([7.0], 99) == 7
    assert median([None, 3.0, None]) == 3
    assert median([None]) is None


def test_a_chart_has_a_bar_for_each_side_and_a_line_for_the_promise() -> None:
    record = Record("sqlite", {})
    record.add("reprieve", {"process.one": 20.0})
    record.add("huey", {"process.one": 10.0})
    picture = ET.fromstring(chart.draw(record, "us", "a < b"))  # noqa: S314 - our own text
    names = [part.tag.rpartition("}")[2] for part in picture]
    assert names.count("rect") == 3
    assert names.count("line") == 1


def test_attempts_are_counted_and_stamped_where_another_process_can_read_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path))
    assert counted(tmp_path) == 0
    assert stamped(tmp_path) == []
    track = Track()
    for _ in range(3):
        track.count()
    track.stamp(-5)
    assert counted(tmp_path) == 3
    assert stamped(tmp_path) == [-5]
