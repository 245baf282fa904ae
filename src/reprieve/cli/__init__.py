"""The command line: `reprieve`, or `python -m reprieve`."""

from reprieve.cli.main import main

__all__ = ["main"]
