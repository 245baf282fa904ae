-- Give unique keys to new jobs. A key that another job has is taken over only if it has expired and that job is gone.
-- `keyed` are the positions in `ids` of the jobs that have a key; `keys` holds 16 bytes for each of them. Jobs in `stored`
-- exist already.
-- Reads job. Writes unique_key. Waits for open transactions that insert the same key.
-- Returns for each job the id under which it is known: its own, or that of the job that has its key.
create function acquire_keys(ids uuid[], stored uuid[], keyed int8[], keys bytea, expires_ats int8[], now int8)
returns uuid[] language plpgsql as $$
declare
    known_ids uuid[] := ids;
    holder uuid;
    new_id uuid;
    job_number int8;
    key_number int8;
    key_bytes bytea;
begin
    -- Always in the order of the keys, so that two transactions never wait for each other.
    for job_number, key_number, key_bytes in
        select k.job_number, k.key_number, substring(keys from (16 * k.key_number - 15)::int4 for 16)
        from unnest(keyed) with ordinality as k (job_number, key_number) order by 3, 1
    loop
        new_id := ids[job_number];
        continue when new_id = any (stored);
        loop
            insert into unique_key as u (key, job, expires_at) values (key_bytes, new_id, expires_ats[key_number])
            on conflict (key) do update set job = excluded.job, expires_at = excluded.expires_at
            -- Not `not exists`, of which the server may make a hash of all jobs.
            where u.expires_at <= now and u.job <> excluded.job and (select job.id from job where job.id = u.job) is null
            returning u.job into holder;
            exit when holder is not null;
            select u.job into holder from unique_key as u where u.key = key_bytes;
            exit when holder is not null;
        end loop;
        known_ids[job_number] := holder;
    end loop;
    return known_ids;
end
$$;
