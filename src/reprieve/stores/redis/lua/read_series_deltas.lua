-- Reads what was counted for series and is not in their lines yet, or a part of it.
--
-- needs calls: tag, call
-- KEYS     1: the partition
-- ARGV     1: how many deltas at most  2: about how many counts of enqueues at most
-- Returns: {number of the last roll-up, deltas, field of a count of enqueues, count, …}

local number = call('HGET', tag .. ':meta', 'series_roll_ups') or '0'
local answer = {number, call('LRANGE', tag .. ':series_deltas', 0, tonumber(ARGV[1]) - 1)}
for _, item in ipairs(call('HSCAN', tag .. ':series_enqueued', 0, 'COUNT', ARGV[2])[2]) do
  answer[#answer + 1] = item
end
return answer
