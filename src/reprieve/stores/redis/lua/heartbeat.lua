-- Keeps a session alive, opens it, or ends it.
--
-- needs calls: tag, call, write_even_when_full
-- needs events: record_events
-- needs sessions: read_session, write_session, offer_slots, end_session
-- KEYS     1: the partition
-- ARGV     1: session, until when it lives, slots, prefetch, queues, whether it is new, whether it is over (msgpack)
--          2: what the heartbeat says, for people to read: see session_record.py; '' outside of the first partition
--          3: who opens the session, see there; '' if it is not new
--          4: the notice of a session that is opened or ended, see event_record.py; '' outside of the first partition
--          5: now
-- Returns: 'alive' or 'dead'

local name, expires_at, slots, prefetch, queues, is_new, is_over = unpack(cmsgpack.unpack(ARGV[1]))
write_even_when_full()
local stored = read_session(name)
if stored and stored.is_dead or not (stored or is_new) then
  return 'dead'
end
local session = stored or {
  name = name, is_dead = false, slots = 0, prefetch = 0, queues = {}, number = 0, results = '', next_at = false,
  ids = '', previous = 0,
}
if is_over then
  end_session(session, expires_at)
  if ARGV[4] ~= '' then
    record_events({'', ARGV[4]}, tonumber(ARGV[5]))
  end
  return 'dead'
end
if offer_slots(session, slots, prefetch, queues) or not stored then
  write_session(session)
end
if ARGV[2] ~= '' then
  call('HSET', tag .. ':last_heartbeats', name, ARGV[2])
end
if ARGV[3] ~= '' then
  call('HSETNX', tag .. ':session_origins', name, ARGV[3])
end
call('ZADD', tag .. ':live_sessions', expires_at, name)
if ARGV[4] ~= '' and not stored then
  record_events({'', ARGV[4]}, tonumber(ARGV[5]))
end
return 'alive'
