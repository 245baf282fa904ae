"""The decisions of Reprieve, pure: no I/O, no clock, no randomness, no logging.

Time and random numbers are arguments. An instant is a whole number of milliseconds since 1970 and its name ends
in `_at` (or is `now`); a duration is a number of seconds; a random number `u` lies in [0, 1).
"""
