"""The worker of the demo: an ordinary worker that ends with the demo, also when the demo is killed."""

import sys

from reprieve.worker.parent_watch import exit_with_parent

COMMAND = ("worker", "reprieve.demo.mail:app", "--processes", "2", "--slots", "8")

if __name__ == "__main__":
    exit_with_parent(int(sys.argv[1]), int(sys.argv[2]))
    from reprieve.cli import main

    main(COMMAND, prog_name="reprieve")
