"""The start of a child process: it leaves the signals of a terminal to its supervisor before it imports anything else.

The imports take most of the time of a start, and Ctrl-C reaches every process of the terminal.
"""

import signal

if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    from reprieve.worker.child import main

    main()
