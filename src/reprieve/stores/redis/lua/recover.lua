-- Declares dead every session whose time is up; answers jobs that the dead still hold, and leaves them leased.
--
-- needs: calls forgotten record rate limits places line events settle
-- KEYS  1: the partition
-- ARGV  1: now  2: limit
-- Returns: {session, id, when it was leased, the wish that it stops or '', record, …}

local now, limit = tonumber(ARGV[1]), tonumber(ARGV[2])
call('HDEL', P .. ':m', '')
for _, session in ipairs(call('ZRANGEBYSCORE', P .. ':sx', '-inf', '(' .. ARGV[1])) do
  local f = cmsgpack.unpack(call('HGET', P .. ':ss', session))
  call('HINCRBY', P .. ':m', 'slots', -f[2])
  f[1], f[2] = 1, 0
  call('HSET', P .. ':ss', session, cmsgpack.pack(f))
  call('ZREM', P .. ':sx', session)
  call('ZADD', P .. ':sd', now, session)
end
local answer, left = {}, limit
for _, session in ipairs(call('ZRANGE', P .. ':sd', 0, -1)) do
  if left <= 0 then
    break
  end
  local held = call('HGETALL', P .. ':y:' .. session)
  if not held[1] then
    -- Nothing that it settles could count any more.
    call('ZREM', P .. ':sd', session)
    call('HDEL', P .. ':ss', session)
  end
  for place = 1, min(#held, 2 * left), 2 do
    local _, at = lease_of(held[place + 1])
    answer[#answer + 1], answer[#answer + 2] = session, held[place]
    answer[#answer + 1] = format('%.0f', at)
    answer[#answer + 1] = wishes_of({held[place]})[held[place]] or ''
    answer[#answer + 1] = call('HGET', P .. ':j', held[place])
    left = left - 1
  end
end
return answer
