-- Forgets what has ended long enough ago, or a part of it.
--
-- needs: calls forgotten record rate limits places line events settle
-- KEYS  1: the partition
-- ARGV  1: now, how many succeeded jobs of a queue are kept, and the moments before which succeeded jobs, cancelled jobs
--          and events go (msgpack)
--       2: archived jobs, 20 bytes each: id, version
-- Returns: how many went: {succeeded, cancelled, dead, events, keys, results}

local left = 1000 -- of all kinds and queues together; the next call goes on
local now, kept, succeeded_before, cancelled_before, events_before = unpack(cmsgpack.unpack(ARGV[1]))
call('HDEL', P .. ':m', '')
local succeeded, cancelled, dead, events, keys, results = 0, 0, 0, 0, 0, 0

local function uncount(ids, counter)
  local records, names = fetch(P .. ':j', ids), {}
  for number, record in ipairs(records) do
    names[number] = lane_in(record)
  end
  meet_lanes(names)
  for _, name in ipairs(names) do
    lanes[name][counter] = lanes[name][counter] - 1
    lanes[name].is_changed = true
  end
end

for _, name in ipairs(call('HKEYS', P .. ':q')) do
  local queue, key = queue_of(name), P .. ':ok:' .. name
  if queue.kept ~= kept then
    queue.kept, queue.is_changed = kept, true
  end
  local count = max(call('ZCARD', key) - kept, call('ZCOUNT', key, '-inf', succeeded_before))
  local gone = min(count, left) > 0 and call('ZRANGE', key, 0, min(count, left) - 1) or {}
  many('ZREM', key, gone)
  forget_jobs(gone)
  succeeded, left = succeeded + #gone, left - #gone
  local old = call('ZRANGEBYSCORE', P .. ':c:' .. name, '-inf', cancelled_before, 'LIMIT', 0, left)
  uncount(old, 'cancelled')
  many('ZREM', P .. ':c:' .. name, old)
  forget_jobs(old)
  cancelled, left = cancelled + #old, left - #old
end

for first = 1, #ARGV[2], 20 do
  if left <= 0 then
    break
  end
  local id, version = struct.unpack('>c16I4', ARGV[2], first)
  local record = call('HGET', P .. ':j', id)
  if record then
    local stored, state = struct.unpack('>I4B', record)
    if stored == version and (state == DEAD or state == EXPIRED) then
      uncount({id}, 'dead')
      call('ZREM', P .. ':x:' .. place_of(lane_in(record)).queue, id)
      forget_jobs({id})
      dead, left = dead + 1, left - 1
    end
  end
end

while left > 0 do
  local entry = call('XRANGE', P .. ':e', '-', '+', 'COUNT', 1)[1]
  if not entry or tonumber(entry[2][2]) > events_before then
    break
  end
  local gone = forget_entry(last_place(entry[1]), entry[2])
  events, left = events + gone, left - gone
end
left = max(0, left)

for _, key in ipairs(call('ZRANGEBYSCORE', P .. ':ux', '-inf', now, 'LIMIT', 0, left)) do
  local holder = call('HGET', P .. ':u', key)
  if holder and call('HEXISTS', P .. ':j', sub(holder, 1, 16)) == 1 then
    -- Not before its job goes: look again in an hour.
    call('ZADD', P .. ':ux', now + 3600000, key)
  else
    call('HDEL', P .. ':u', key)
    call('ZREM', P .. ':ux', key)
    keys, left = keys + 1, left - 1
  end
end
local late = call('ZRANGEBYSCORE', P .. ':rx', '-inf', now, 'LIMIT', 0, left)
many('HDEL', P .. ':rs', late)
many('ZREM', P .. ':rx', late)
results = #late
flush()
return {succeeded, cancelled, dead, events, keys, results}
