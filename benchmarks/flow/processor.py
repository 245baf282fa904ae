"""Processor time of other processes, where the system tells: Linux, by /proc."""

import os
from pathlib import Path

PROC = Path("/proc")


def seconds(*processes: int) -> tuple[float | None, float | None]:
    """Return the processor time of processes and of all their descendants; None where the system does not tell."""
    parents, spent = _look()
    if not spent.keys() >= set(processes):
        return None, None
    family: set[int] = set()
    generation = set(processes)
    while generation:
        generation = {child for child, parent in parents.items() if parent in generation}
        family |= generation
    return sum(map(spent.__getitem__, processes)), sum(map(spent.__getitem__, family)) if family else None


def _look() -> tuple[dict[int, int], dict[int, float]]:
    parents: dict[int, int] = {}
    spent: dict[int, float] = {}
    tick = os.sysconf("SC_CLK_TCK")
    for place in PROC.glob("[0-9]*"):
        try:
            # What stands in brackets is the name, which may hold anything.
            fields = (place / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        except OSError:
            continue
        number = int(place.name)
        parents[number] = int(fields[1])
        spent[number] = (int(fields[11]) + int(fields[12])) / tick
    return parents, spent
