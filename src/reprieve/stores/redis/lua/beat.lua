-- Keeps a session alive, opens it, or ends it.
--
-- needs: calls record rate limits places line events settle
-- KEYS  1: the partition
-- ARGV  1: session, until when it lives, slots, whether it is new, whether it is over, number of the last claim whose
--          answer arrived, whether it says what it holds (msgpack)
--       2: the ids that it holds
-- Answer: {is alive (0 or 1), number of ids to stop, their ids …, then id, when it was leased, record, … of what it was
--          leased and does not hold}

local session, expires_at, slots, is_new, is_over, claimed, says_what = unpack(cmsgpack.unpack(ARGV[1]))
call('HDEL', P .. ':m', '')
local packed = call('HGET', P .. ':ss', session)
if not packed and not is_new then
  return {0, 0}
end
local f = packed and cmsgpack.unpack(packed) or {0, 0, 0, '', false, ''}
if f[1] == 1 then
  return {0, 0}
end
call('HINCRBY', P .. ':m', 'slots', (is_over and 0 or slots) - f[2])
f[2] = is_over and 0 or slots
if is_over then
  f[1] = 1
  call('ZREM', P .. ':sx', session)
  call('ZADD', P .. ':sd', expires_at, session)
else
  call('ZADD', P .. ':sx', expires_at, session)
end
call('HSET', P .. ':ss', session, cmsgpack.pack(f))

local answer, lost = {is_over and 0 or 1, 0}, {}
local held = call('HGETALL', P .. ':y:' .. session)
if says_what then
  local holds = {}
  for _, id in ipairs(split(ARGV[2], 16)) do
    holds[id] = true
  end
  for place = 1, #held, 2 do
    local id = held[place]
    local number, at = lease_of(held[place + 1])
    if not holds[id] and number <= claimed then
      lost[#lost + 1], lost[#lost + 2] = id, format('%.0f', at)
      lost[#lost + 1] = call('HGET', P .. ':j', id)
      held[place + 1] = false
    end
  end
end
if call('HLEN', P .. ':mk') > 0 then
  for place = 1, #held, 2 do
    local mark = held[place + 1] and call('HGET', P .. ':mk', held[place])
    if mark and string.byte(mark, 1) == 1 then
      answer[#answer + 1] = held[place]
    end
  end
  answer[2] = #answer - 2
end
for _, part in ipairs(lost) do
  answer[#answer + 1] = part
end
return answer
