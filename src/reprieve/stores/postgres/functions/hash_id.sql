-- Return the id of a queue, tenant, limiter or lane: the first eight bytes of the SHA-256 of its names. `hash_id` in
-- lane_ref.py returns the same.
-- Reads, writes and locks nothing.
create function hash_id(variadic names text[]) returns int8 language plpgsql immutable as $$
begin
    return ('x' || encode(substring(sha256(convert_to(array_to_string(names, chr(1)), 'UTF8')) for 8), 'hex'))::bit(64)::int8;
end
$$;
