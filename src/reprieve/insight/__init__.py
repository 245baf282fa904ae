"""What can be learned from failures: so far the simulator, which plays outages in virtual time."""
