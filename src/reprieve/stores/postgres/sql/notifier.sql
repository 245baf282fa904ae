-- name: no_flush
-- A notification need not survive a crash of the server, so its commit waits for no disk.
set synchronous_commit = off;

-- name: listen
listen "{channel}";

-- name: notify
select count(pg_notify(%(channel)s, payload)) from unnest(%(payloads)s::text[]) as payload;
