"""The record of a measurement: every run of every side, the medians, and what it was made on."""

import json
from collections import defaultdict
from pathlib import Path

from benchmarks.flow.figure import Figure, figures_on
from benchmarks.flow.measure import Found, median


class Record:
    """What was found."""

    def __init__(self, home: str, facts: dict[str, object]) -> None:
        """Begin with the kind of store, and what else is known beforehand."""
        self._figures = figures_on(home).values()
        self._facts = facts
        self._runs: dict[str, dict[str, list[float | None]]] = defaultdict(lambda: defaultdict(list))

    def add(self, side: str, found: Found) -> None:
        """Take what one run of one side has found."""
        for name, value in found.items():
            self._runs[side][name].append(value)

    def value(self, side: str, figure: Figure) -> float | None:
        """Return the median of a side's runs, or their sum if they count something; None where there is nothing."""
        found = self._runs[side].get(figure.name, []) if side in self._runs else []
        return sum(value or 0.0 for value in found) if figure.is_count and found else median(found)

    def ratio(self, side: str, other: str, figure: Figure) -> float | None:
        """Return how many times better one side is than another."""
        ours, theirs = self.value(side, figure), self.value(other, figure)
        if not ours or not theirs or min(ours, theirs) < 0:
            return None
        return ours / theirs if figure.better == "more" else theirs / ours

    def sides(self) -> list[str]:
        """Return who was measured, in the order in which they came."""
        return list(self._runs)

    def figures(self) -> list[Figure]:
        """Return the figures that have a value."""
        return [figure for figure in self._figures if any(self.value(side, figure) is not None for side in self._runs)]

    def save(self, path: Path) -> None:
        """Write everything as JSON."""
        figures = {
            figure.name: {
                "title": figure.title,
                "unit": figure.unit,
                "better": figure.better,
                "target": figure.target,
                "sides": {
                    side: {"value": _round(self.value(side, figure)), "runs": [*map(_round, runs[figure.name])]}
                    for side, runs in self._runs.items()
                    if figure.name in runs
                },
            }
            for figure in self.figures()
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self._facts | {"figures": figures}, indent=2, ensure_ascii=False) + "\n", "utf-8")


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
