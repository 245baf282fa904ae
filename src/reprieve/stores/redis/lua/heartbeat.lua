-- Keeps a session alive, opens it, or ends it.
--
-- needs: calls
-- KEYS  1: the partition
-- ARGV  1: session, until when it lives, slots, whether it is new, whether it is over (msgpack)
-- Returns: 1 or 0, whether it lives

local session, expires_at, slots, is_new, is_over = unpack(cmsgpack.unpack(ARGV[1]))
call('HDEL', P .. ':m', '')
local packed = call('HGET', P .. ':ss', session)
local f = packed and cmsgpack.unpack(packed) or {0, 0, 0, '', false, '', 0}
if f[1] == 1 or not (packed or is_new) then
  return 0
end
slots = is_over and 0 or slots
if slots ~= f[2] or is_over or not packed then
  call('HINCRBY', P .. ':m', 'slots', slots - f[2])
  f[1], f[2] = is_over and 1 or 0, slots
  call('HSET', P .. ':ss', session, cmsgpack.pack(f))
end
if is_over then
  call('ZREM', P .. ':sx', session)
  call('ZADD', P .. ':sd', expires_at, session)
  return 0
end
call('ZADD', P .. ':sx', expires_at, session)
return 1
