"""Every benchmark: `make bench`."""

from benchmarks import core, fingerprint

core.main()
fingerprint.main()
