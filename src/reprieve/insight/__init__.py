"""Analysis of failures: the simulator of outages in virtual time."""
