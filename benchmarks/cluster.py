"""What a job costs the servers of a Redis Cluster, and how evenly they share it: `python -m benchmarks.cluster`.

Through the store's own API, in one process, with real servers: one, two and four primaries. Their processor time for
each job should not grow with their number, and none should have much more of it than the others.
"""

import argparse
import asyncio
import statistics

from rich.console import Console
from rich.table import Table

from benchmarks.homes import RedisHome
from benchmarks.store import Bench, succeed
from tests.servers.redis import cluster

CONSTANT, EVEN = 0.10, 1.3
"""By how much of itself the processor time of a job may change, and how many times its part one server may have."""


async def work_off(home: RedisHome, jobs: int, tenants: int) -> tuple[float, list[float]]:
    """Enqueue, claim and settle; return jobs per second, and microseconds of each server for a job."""
    bench = Bench(home)
    await bench.open()
    before = home.each_cpu()
    await bench.fill(jobs, tenants)
    rate, _ = await bench.drain(jobs, 100, succeed)
    costs = [(after - first) / jobs * 1e6 for first, after in zip(before, home.each_cpu(), strict=True)]
    await bench.close()
    return rate, costs


def measure(jobs: int, tenants: int, runs: int) -> Table:
    """Measure each size of a Cluster, the median of some runs."""
    table = Table("primaries", "jobs/s", "µs of servers a job", "to one", "", "most to mean", "", title="Redis Cluster")
    base = 0.0
    for count in (1, 2, 4):
        found = []
        for _ in range(runs):
            with cluster(masters=count) as servers:
                home = RedisHome(servers.url, [master.url for master in servers.masters])
                found.append(asyncio.run(work_off(home, jobs, tenants)))
        rate = statistics.median(rate for rate, _ in found)
        cost = statistics.median(sum(costs) for _, costs in found)
        uneven = statistics.median(max(costs) / statistics.mean(costs) for _, costs in found)
        base = base or cost
        table.add_row(
            *(str(count), f"{rate:,.0f}", f"{cost:.1f}", f"{cost / base:.2f}×"),
            *("✓" if abs(cost / base - 1) <= CONSTANT else "✗", f"{uneven:.2f}", "✓" if uneven <= EVEN else "✗"),
        )
    return table


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=40_000, help="jobs of each run")
    # Jobs go to partitions in turn: a number of tenants that those divide would leave each partition some of them only.
    parser.add_argument("--tenants", type=int, default=101)
    parser.add_argument("--runs", type=int, default=3, help="runs that each figure is the median of")
    wanted, _ = parser.parse_known_args()
    Console().print(measure(wanted.jobs, wanted.tenants, wanted.runs))


if __name__ == "__main__":
    main()
