"""The decisions of Reprieve, pure: no I/O, no clock, no chance, no logging.

Time and chance are arguments. An instant is a whole number of milliseconds since 1970 and its name ends
in `_at` (or is `now`); a duration is a number of seconds; chance is a number `u` in [0, 1).
"""
