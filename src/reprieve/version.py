"""The version of this release, which the command line shows and workers tell the store."""

__version__ = "0.1.0"
