"""The kept counters of queues, tasks and dependencies: written with those of lanes, a row for each name in a batch."""

from collections.abc import Mapping

from reprieve.core.status import Status
from reprieve.stores.postgres.lane_cache import LaneCache
from reprieve.stores.postgres.pool import Tx
from reprieve.stores.postgres.rows import array_of
from reprieve.stores.postgres.statements import statements
from reprieve.stores.tallying import COUNTERS, counts_by_name


def count_names(tx: Tx, lanes: LaneCache, counts: Mapping[int, Mapping[Status, int]]) -> None:
    """Add what a batch adds to the counters of lanes to those of their names; under the claim lock."""
    lanes.load(tx, counts)
    sums = counts_by_name((lanes[lane], numbers) for lane, numbers in counts.items())
    # In one order, as all transactions write them.
    rows = sorted(key for key, numbers in sums.items() if any(numbers.values()))
    if rows:
        parameters: dict[str, object] = {
            "subjects": [subject for subject, _ in rows],
            "names": [name for _, name in rows],
            **{counter: array_of(sums[key][counter] for key in rows) for counter in COUNTERS},
        }
        tx.execute(statements("name_counts")["add"], parameters)
