"""Run the command line with `python -m reprieve`."""

from reprieve.cli import main

main(prog_name="reprieve")
