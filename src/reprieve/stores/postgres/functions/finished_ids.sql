-- Return which of these jobs have succeeded and are remembered. `lowest_id` and `highest_id` bound their ids.
-- Reads finished.
create function finished_ids(wanted uuid[], lowest_id uuid, highest_id uuid) returns uuid[] language plpgsql as $$
#variable_conflict use_variable
begin
    return array(
        select done.id from finished as f cross join lateral unnest(f.ids) as done (id) join unnest(wanted) as v (id) using (id)
        where f.highest_id >= lowest_id and f.lowest_id <= highest_id
    );
end
$$;
