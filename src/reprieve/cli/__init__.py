"""The command line: `reprieve`, or `python -m reprieve`."""

try:
    from reprieve.cli.main import main
except KeyboardInterrupt:
    # The imports take most of the time of a short command, and Ctrl-C during them is no error either.
    raise SystemExit(130) from None

__all__ = ["main"]
