-- Reads what was counted for series and is not in their lines yet, or a part of it. Counts of enqueues are read from where the
-- last roll-up has stopped, as far as the end.
--
-- needs calls: tag, call
-- KEYS     1: the partition
-- ARGV     1: how many deltas at most  2: about how many counts of enqueues at most
-- Returns: {number of the last roll-up, deltas, cursor where this read began, cursor behind it ('0': at the end),
--           field of a count of enqueues, count, …}

local MAX_SCANS = 10 -- each looks at ten times as many places as counts are wanted, most of which may be empty

local number, first = unpack(call('HMGET', tag .. ':meta', 'series_roll_ups', 'series_cursor'))
first = first or '0'
local cursor, counts = first, {}
for _ = 1, MAX_SCANS do
  local found = call('HSCAN', tag .. ':series_enqueued', cursor, 'COUNT', ARGV[2])
  cursor = found[1]
  for _, item in ipairs(found[2]) do
    counts[#counts + 1] = item
  end
  if cursor == '0' or #counts >= 2 * tonumber(ARGV[2]) then
    break
  end
end
local answer = {number or '0', call('LRANGE', tag .. ':series_deltas', 0, tonumber(ARGV[1]) - 1), first, cursor}
for _, item in ipairs(counts) do
  answer[#answer + 1] = item
end
return answer
