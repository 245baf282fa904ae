-- Begin a claim: acquire the claim lock, and promote the due jobs of these queues.
-- Reads, writes and locks what acquire_claim_lock and promote_due do. Returns what acquire_claim_lock returns.
create function begin_claim(counted pg_snapshot, queues int8[], now int8, max_promoted int8)
returns pg_snapshot language plpgsql as $$
declare
    snapshot pg_snapshot := acquire_claim_lock(counted);
    queue_id int8;
begin
    foreach queue_id in array queues loop
        perform promote_due(queue_id, now, max_promoted);
    end loop;
    return snapshot;
end
$$;
