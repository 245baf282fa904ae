-- name: keep
insert into failure (fingerprint, last_seen_at, packed) values (%(fingerprint)s, %(last_seen_at)s, %(packed)s)
on conflict (fingerprint) do update set last_seen_at = greatest(failure.last_seen_at, excluded.last_seen_at);

-- name: find
select packed, last_seen_at from failure
where fingerprint in (select json_array_elements_text(%(fingerprints)s::json));

-- name: prune
with gone as (
    delete from failure where last_seen_at < %(before)s or fingerprint = any (array(
        select fingerprint from failure order by last_seen_at desc offset %(kept)s limit %(max_rows)s
    )) returning 1
)
select count(*) from gone;
