"""The fair choice: whose job is next, and from which lane it comes. SQLite and PostgreSQL run this code.

The next job goes to the waiting tenant that holds the fewest slots for its weight. Slots held, not jobs served, make
it fair in seconds: a tenant with long jobs holds its slots longer and is passed over meanwhile. Among equals virtual
time decides, so that they take turns; among equals of that, the name.

A store reads `candidates`, the `choice` picks, and the store writes back the `updates`; the numbers are `settings`.
Redis runs the same rules in `stores/redis/lua/fairness.lua`, and a test compares the two.
"""
