-- Writes lines of series to which a client has added what was counted, and forgets that, unless another client was first.
-- The lines of a bucket of time are a hash, by name; `:series_buckets:<step>` has the buckets by when they begin.
--
-- needs calls: tag, call, write_even_when_full
-- KEYS     1: the partition
-- ARGV     1: number of the last roll-up that the client has seen, number of deltas, fields and counts of enqueues, for
--             each bucket step, when it begins (text), subject, and how many lines, and the cursor behind the counts of
--             enqueues (msgpack)
--          2 …: name, line, … in the order of the buckets
-- Returns: 'ok', or 'overtaken': nothing was done

local number, deltas, enqueued, buckets, cursor = unpack(cmsgpack.unpack(ARGV[1]))
if tonumber(call('HGET', tag .. ':meta', 'series_roll_ups') or 0) ~= number then
  return 'overtaken'
end
write_even_when_full()
call('HINCRBY', tag .. ':meta', 'series_roll_ups', 1)
call('HSET', tag .. ':meta', 'series_cursor', cursor)
call('LTRIM', tag .. ':series_deltas', deltas, -1)
for index = 1, #enqueued, 2 do
  if call('HINCRBY', tag .. ':series_enqueued', enqueued[index], -enqueued[index + 1]) <= 0 then
    call('HDEL', tag .. ':series_enqueued', enqueued[index])
  end
end
local first = 2
for _, bucket in ipairs(buckets) do
  local step, at, subject, count = unpack(bucket)
  local name = at .. ':' .. subject
  for index = first, first + 2 * count - 1, 2 do
    call('HSET', tag .. ':series:' .. step .. ':' .. name, ARGV[index], ARGV[index + 1])
  end
  call('ZADD', tag .. ':series_buckets:' .. step, at, name)
  first = first + 2 * count
end
return 'ok'
