"""Every benchmark: `make bench`. One of them: `python -m benchmarks flow --only process,latency --runs 1`."""

import sys

from benchmarks import cluster, core, fingerprint, store
from benchmarks.flow import command as flow
from benchmarks.queries import command as queries

match sys.argv[1:]:
    case []:
        core.main()
        fingerprint.main()
        store.main()
        cluster.main()
        for home in ("sqlite", "postgres", "redis"):
            flow.main(["--store", home])
        queries.main([])
    case ["flow", *arguments]:
        flow.main(arguments)
    case ["queries", *arguments]:
        queries.main(arguments)
    case _:
        sys.exit("usage: python -m benchmarks [flow|queries [options]]; others: python -m benchmarks.core and so on")
