-- Sessions and their leases, and cancel requests for jobs that run.
--
-- needs calls: tag, call, sub, fetch_fields
-- exports: read_session, write_session, end_session, all_sessions
-- exports: pack_lease, unpack_lease, find_leases, unpack_annotation, cancel_requests

-- Values of more than 64 bytes make Redis keep a hash as a hash table. A small hash is a list otherwise, in which each of
-- a hundred leases would be searched for from the start.
local PADDING = string.rep('\0', 44)

-- Returns a session as it is stored, or nil. `number`, `results`, `next_at` and `ids` are of its last call that did
-- anything, `previous` is the number of the call before.
function read_session(name)
  local packed = call('HGET', tag .. ':sessions', name)
  if packed then
    local f = cmsgpack.unpack(packed)
    return {
      name = name, is_dead = f[1] == 1, slots = f[2], number = f[3], results = f[4], next_at = f[5], ids = f[6],
      previous = f[7],
    }
  end
end

function write_session(session)
  call('HSET', tag .. ':sessions', session.name, cmsgpack.pack({
    session.is_dead and 1 or 0, session.slots, session.number, session.results, session.next_at, session.ids,
    session.previous,
  }))
end

-- Declares a session dead at a moment; its leases stay until they are recovered.
function end_session(session, at)
  call('HINCRBY', tag .. ':meta', 'slots', -session.slots)
  session.is_dead, session.slots = true, 0
  write_session(session)
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
