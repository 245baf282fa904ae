"""Where jobs are kept: one protocol, and the stores that follow it. Stores do not know each other."""
