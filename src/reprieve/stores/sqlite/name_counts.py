"""The kept counters of queues, tasks and dependencies: written with those of lanes, a row for each name in a batch."""

from collections.abc import Mapping

from reprieve.core.status import Status
from reprieve.stores.sqlite.lane_cache import LaneCache
from reprieve.stores.sqlite.statements import Tx, run, statements
from reprieve.stores.tallying import COUNTERS, counts_by_name


def count_names(tx: Tx, lanes: LaneCache, counts: Mapping[int, Mapping[Status, int]]) -> None:
    """Add what a batch adds to the counters of lanes to those of their names."""
    if not counts:
        return
    lanes.load(tx, counts)
    sums = counts_by_name((lanes[lane], numbers) for lane, numbers in counts.items())
    rows = [(*key, *(numbers[name] for name in COUNTERS)) for key, numbers in sums.items() if any(numbers.values())]
    run(tx, statements("name_counts")["add"], rows)
