"""Every benchmark: `make bench`."""

from benchmarks import core, fingerprint, store

core.main()
fingerprint.main()
store.main()
