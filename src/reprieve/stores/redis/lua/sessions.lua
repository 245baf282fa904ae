-- Sessions and their leases, and cancel requests for jobs that run.
--
-- needs calls: tag, call, concat, sub, fetch_fields
-- exports: read_session, write_session, offer_slots, capacity_of, end_session, all_sessions
-- exports: pack_lease, unpack_lease, find_leases, unpack_annotation, cancel_requests

-- Values of more than 64 bytes make Redis keep a hash as a hash table. A small hash is a list otherwise, in which each of
-- a hundred leases would be searched for from the start.
local PADDING = string.rep('\0', 44)

-- Returns a session as it is stored, or nil. `slots` and `prefetch` are what it adds to the capacity of its queues, or of
-- all queues if it names none. `number`, `results`, `next_at` and `ids` are of its last call that did
-- anything, `previous` is the number of the call before.
function read_session(name)
  local packed = call('HGET', tag .. ':sessions', name)
  if packed then
    local f = cmsgpack.unpack(packed)
    return {
      name = name, is_dead = f[1] == 1, slots = f[2], prefetch = f[3], queues = f[4], number = f[5], results = f[6],
      next_at = f[7], ids = f[8], previous = f[9],
    }
  end
end

function write_session(session)
  call('HSET', tag .. ':sessions', session.name, cmsgpack.pack({
    session.is_dead and 1 or 0, session.slots, session.prefetch, session.queues, session.number, session.results,
    session.next_at, session.ids, session.previous,
  }))
end

local function add_capacity(queues, slots, prefetch)
  for _, queue in ipairs(queues[1] and queues or {''}) do
    for field, count in pairs({['s' .. queue] = slots, ['p' .. queue] = prefetch}) do
      if count ~= 0 and call('HINCRBY', tag .. ':capacity', field, count) == 0 then
        call('HDEL', tag .. ':capacity', field)
      end
    end
  end
end

-- Sets what a session adds to the capacity of queues; returns whether that is new.
function offer_slots(session, slots, prefetch, queues)
  local is_same = concat(queues, '\0') == concat(session.queues, '\0')
  if is_same and slots == session.slots and prefetch == session.prefetch then
    return false
  elseif is_same then
    add_capacity(queues, slots - session.slots, prefetch - session.prefetch)
  else
    add_capacity(session.queues, -session.slots, -session.prefetch)
    add_capacity(queues, slots, prefetch)
  end
  session.slots, session.prefetch, session.queues = slots, prefetch, queues
  return true
end

-- Returns the slots and the prefetch of the live sessions that serve a queue.
function capacity_of(queue)
  local sums = call('HMGET', tag .. ':capacity', 's', 'p', 's' .. queue, 'p' .. queue)
  return {tonumber(sums[1] or 0) + tonumber(sums[3] or 0), tonumber(sums[2] or 0) + tonumber(sums[4] or 0)}
end

-- Declares a session dead at a moment; its leases stay until they are recovered.
function end_session(session, at)
  offer_slots(session, 0, 0, {})
  session.is_dead = true
  write_session(session)
  call('HDEL', tag .. ':last_heartbeats', session.name)
  call('HDEL', tag .. ':session_origins', session.name)
  call('ZREM', tag .. ':live_sessions', session.name)
  call('ZADD', tag .. ':dead_sessions', at, session.name)
end

function all_sessions()
  local names = call('ZRANGE', tag .. ':live_sessions', 0, -1)
  for _, name in ipairs(call('ZRANGE', tag .. ':dead_sessions', 0, -1)) do
    names[#names + 1] = name
  end
  return names
end

-- Packs a lease: the number of the call that took it, when, the job's version while it runs, padding, and its lane.
function pack_lease(number, at, version, lane)
  return struct.pack('>ddI4c44', number, at, version, PADDING) .. lane
end

function unpack_lease(packed)
  local number, at, version = struct.unpack('>ddI4', packed)
  return number, at, version, sub(packed, 65)
end

-- Returns the leases of jobs that run, by their numbers in the list: {session, packed lease}.
function find_leases(ids)
  local found, wanted, by_id = {}, {}, {}
  for _, id in ipairs(ids) do
    wanted[id] = true
  end
  for _, session in ipairs(ids[1] and all_sessions() or {}) do
    local key, some = tag .. ':leases:' .. session, ids
    if call('HLEN', key) < #ids then
      some = {}
      for _, id in ipairs(call('HKEYS', key)) do
        some[#some + 1] = wanted[id] and id or nil
      end
    end
    for number, packed in ipairs(fetch_fields(key, some)) do
      if packed then
        by_id[some[number]] = {session, packed}
      end
    end
  end
  for number, id in ipairs(ids) do
    found[number] = by_id[id]
  end
  return found
end

-- Returns the cancel request and the progress in an annotation; '' where there is none.
function unpack_annotation(packed)
  local length = struct.unpack('>I2', packed)
  return sub(packed, 3, 2 + length), sub(packed, 3 + length)
end

-- Returns the cancel requests of running jobs, by id.
function cancel_requests(ids)
  local requests = {}
  if ids[1] and call('EXISTS', tag .. ':annotations') == 1 then
    for number, packed in ipairs(fetch_fields(tag .. ':annotations', ids)) do
      local request = packed and unpack_annotation(packed) or ''
      requests[ids[number]] = request ~= '' and request or nil
    end
  end
  return requests
end
