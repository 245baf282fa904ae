-- name: hurry
-- Nothing that is said here has to outlive a crash, so nobody waits for the disk.
set synchronous_commit = off;

-- name: listen
listen "{channel}";

-- name: tell
select count(pg_notify(%(channel)s, payload)) from unnest(%(payloads)s::text[]) as payload;
