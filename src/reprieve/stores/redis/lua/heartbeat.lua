-- Keeps a session alive, opens it, or ends it.
--
-- needs calls: tag, call, write_even_when_full
-- needs sessions: read_session, write_session, end_session
-- KEYS     1: the partition
-- ARGV     1: session, until when it lives, slots, whether it is new, whether it is over (msgpack)
-- Returns: 'alive' or 'dead'

local name, expires_at, slots, is_new, is_over = unpack(cmsgpack.unpack(ARGV[1]))
write_even_when_full()
local stored = read_session(name)
if stored and stored.is_dead or not (stored or is_new) then
  return 'dead'
end
local session = stored or {
  name = name, is_dead = false, slots = 0, number = 0, results = '', next_at = false, ids = '', previous = 0,
}
if is_over then
  end_session(session, expires_at)
  return 'dead'
end
if slots ~= session.slots or not stored then
  call('HINCRBY', tag .. ':meta', 'slots', slots - session.slots)
  session.slots = slots
  write_session(session)
end
call('ZADD', tag .. ':live_sessions', expires_at, name)
return 'alive'
