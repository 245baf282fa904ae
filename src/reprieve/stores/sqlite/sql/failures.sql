-- name: keep
insert into reprieve_failure (fingerprint, last_seen_at, packed) values (:fingerprint, :last_seen_at, :packed)
on conflict (fingerprint) do update set last_seen_at = max(last_seen_at, excluded.last_seen_at);

-- name: find
select packed, last_seen_at from reprieve_failure where fingerprint in (select value from json_each(:fingerprints));

-- name: prune
delete from reprieve_failure as failure where last_seen_at < :before or id in (
    select id from reprieve_failure as old order by last_seen_at desc limit :max_rows offset :kept
);
