-- Deletes lines of series that are kept no longer.
--
-- needs calls: tag, call, write_even_when_full
-- KEYS     1: the partition
-- ARGV     step, instant before which its buckets go, …
-- Returns: how many lines went

local MAX_BUCKETS = 200 -- of each step; the next call goes on

write_even_when_full()
local lines = 0
for index = 1, #ARGV, 2 do
  local buckets = tag .. ':series_buckets:' .. ARGV[index]
  for _, name in ipairs(call('ZRANGEBYSCORE', buckets, '-inf', '(' .. ARGV[index + 1], 'LIMIT', 0, MAX_BUCKETS)) do
    local key = tag .. ':series:' .. ARGV[index] .. ':' .. name
    lines = lines + call('HLEN', key)
    call('UNLINK', key)
    call('ZREM', buckets, name)
  end
end
return lines
