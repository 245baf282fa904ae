-- Returns the sessions whose lease lasts.
--
-- needs calls: tag, call, fetch_fields
-- KEYS     1: the partition
-- ARGV     1: now
-- Returns: {name, what its last heartbeat said or '', who opened it or '', …}: see session_record.py

local names = call('ZRANGEBYSCORE', tag .. ':live_sessions', ARGV[1], '+inf')
local heartbeats = fetch_fields(tag .. ':last_heartbeats', names)
local origins = fetch_fields(tag .. ':session_origins', names)
local answer = {}
for number, name in ipairs(names) do
  local count = #answer
  answer[count + 1], answer[count + 2] = name, heartbeats[number] or ''
  answer[count + 3] = origins[number] or ''
end
return answer
