-- Declares dead every session past its lease; returns jobs that dead sessions still hold, and leaves them leased.
--
-- needs calls: tag, call, min, format, write_even_when_full
-- needs events: record_events
-- needs record: sound
-- needs sessions: read_session, end_session, unpack_lease, cancel_requests
-- KEYS     1: the partition
-- ARGV     1: now  2: limit  3: '1' in the first partition, which tells of the sessions
-- Returns: {session, id, when it was leased, cancel request or '', record, …}

local now, left = tonumber(ARGV[1]), tonumber(ARGV[2])
write_even_when_full()
local died = {} -- notices that the client completes: records.py
for _, name in ipairs(call('ZRANGEBYSCORE', tag .. ':live_sessions', '-inf', '(' .. ARGV[1])) do
  end_session(read_session(name), now)
  if ARGV[3] == '1' then
    died[#died + 1], died[#died + 2] = '', 'D' .. struct.pack('>d', now) .. name
  end
end
record_events(died, now)
local answer = {}
for _, name in ipairs(call('ZRANGE', tag .. ':dead_sessions', 0, -1)) do
  if left <= 0 then
    break
  end
  local held = call('HGETALL', tag .. ':leases:' .. name)
  if not held[1] then
    -- Nothing that it settles could apply any more.
    call('ZREM', tag .. ':dead_sessions', name)
    call('HDEL', tag .. ':sessions', name)
  end
  for index = 1, min(#held, 2 * left), 2 do
    local id = held[index]
    local _, at, version, lane = unpack_lease(held[index + 1])
    answer[#answer + 1], answer[#answer + 2], answer[#answer + 3] = name, id, format('%.0f', at)
    answer[#answer + 1] = cancel_requests({id})[id] or ''
    answer[#answer + 1] = sound(call('HGET', tag .. ':jobs', id) or '', version - 1, lane)
    left = left - 1
  end
end
return answer
