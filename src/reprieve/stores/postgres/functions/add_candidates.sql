-- Make tenants candidates of the next claims. A tenant begins at the virtual time of its queue: what it did not use while it had
-- no jobs is gone. Tenants that are candidates already, or blocked, stay as they are.
-- Reads queue. Writes tenant. Needs the claim lock.
create function add_candidates(tenants int8[]) returns void language plpgsql as $$
begin
    update tenant as t
    set is_candidate = true,
        finish = greatest(t.finish, (select q.clock from queue as q where q.id = t.queue))
    where t.id = any (tenants) and not t.is_candidate and t.blocked = 0;
end
$$;
