-- name: listen
listen "{channel}";

-- name: tell
select count(pg_notify(%(channel)s, payload)) from unnest(%(payloads)s::text[]) as payload;
