-- Part: changes carried out. Each is checked against the lease or version that it guards, then all are written at once.
--
--   :j  hash: job → record
--   :y:<session> hash: job → lease: number of the call (8 bytes), when (8), version (4), lane
--   :x:<queue>, :c:<queue>, :ok:<queue> sorted sets: dead, cancelled and succeeded jobs → when they ended
--   :rs hash, :rx sorted set: job → result, and until when it is kept
--   :mk hash: job → what stands beside its version: length of the wish to stop (2 bytes), the wish, progress if it is
--       noted (a byte, and what it is)
--   :ss hash: session → see work.lua;  :sx, :sd sorted sets: sessions that live → until when, and the dead

local LEAST_KEPT = 1000
local ENDED = {[DEAD] = ':x:', [CANCELLED] = ':c:', [EXPIRED] = ':x:', [GIVEN_UP] = ':c:'}
local ENDED_COUNTER = {[DEAD] = 'dead', [CANCELLED] = 'cancelled', [EXPIRED] = 'dead', [GIVEN_UP] = 'cancelled'}

local function lease_of(packed)
  local number, at, version = struct.unpack('>ddI4', packed)
  return number, at, version, sub(packed, 21)
end

local function sessions_of()
  local names = call('ZRANGE', P .. ':sx', 0, -1)
  for _, name in ipairs(call('ZRANGE', P .. ':sd', 0, -1)) do
    names[#names + 1] = name
  end
  return names
end

local function wish_in(annotation)
  local length = struct.unpack('>I2', annotation)
  return sub(annotation, 3, 2 + length), sub(annotation, 3 + length)
end

-- Returns the wishes that running jobs stop, by their ids.
local function wishes_of(ids)
  local wishes = {}
  if ids[1] and call('EXISTS', P .. ':mk') == 1 then
    for number, annotation in ipairs(fetch(P .. ':mk', ids)) do
      local wish = annotation and wish_in(annotation) or ''
      wishes[ids[number]] = wish ~= '' and wish or nil
    end
  end
  return wishes
end

-- Returns for each id the session and the lease that it runs under, or false.
local function leases_of(ids)
  local found, wanted, by_id = {}, {}, {}
  for _, id in ipairs(ids) do
    wanted[id] = true
  end
  for _, session in ipairs(ids[1] and sessions_of() or {}) do
    local key, some = P .. ':y:' .. session, ids
    if call('HLEN', key) < #ids then
      some = {}
      for _, id in ipairs(call('HKEYS', key)) do
        some[#some + 1] = wanted[id] and id or nil
      end
    end
    for number, packed in ipairs(fetch(key, some)) do
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

local function forget_jobs(ids)
  many('HDEL', P .. ':j', ids)
  remember(ids)
end

-- Keeps the newest succeeded jobs of a queue: as many as the last prune was told to, if that is more than the least.
local function keep(queue, scored)
  local key = P .. ':ok:' .. queue
  many('ZADD', key, scored)
  local excess = call('ZCARD', key) - max(LEAST_KEPT, queue_of(queue).kept)
  if excess > 0 then
    local gone = call('ZRANGE', key, 0, min(excess, 2000) - 1)
    call('ZREMRANGEBYRANK', key, 0, #gone - 1)
    forget_jobs(gone)
  end
end

-- Returns whether a job runs, of those that changes without a session are about; leases are read once, if at all.
local function leased_of(changes)
  local leased
  return function(id)
    if not leased then
      local ids = {}
      leased = {}
      for _, change in ipairs(changes) do
        if change.session == '' then
          ids[#ids + 1] = change.id
        end
      end
      for number in pairs(leases_of(ids)) do
        leased[ids[number]] = true
      end
    end
    return leased[id]
  end
end

-- Takes a job that does not run from where it is. Answers its lane, or nil if it is not as the change saw it.
local function take_out(id, version, is_leased)
  local record = call('HGET', P .. ':j', id)
  if not record then
    return
  end
  local stored, state, wait = struct.unpack('>I4BB', record)
  if stored ~= version then
    return
  end
  local lane = lane_of(lane_in(record))
  local queue = lane.place.queue
  if state ~= WAITING then
    call('ZREM', P .. ENDED[state] .. queue, id)
    local counter = ENDED_COUNTER[state]
    lane[counter] = lane[counter] - 1
  elseif call('ZREM', delayed_key(queue, wait), id) == 1 then
    local counter = COUNTERS[wait == 0 and 1 or wait]
    lane[counter] = lane[counter] - 1
  elseif call('ZSCORE', P .. ':ok:' .. queue, id) or is_leased(id) then
    return
  else
    call('HINCRBY', P .. ':lo', id, 1)
    lane.ready = lane.ready - 1
  end
  relist(lane)
  return lane
end

local function why_not(change)
  if change.event ~= '' and is_told(change.id, change.event) then
    return 'y'
  end
  local record = call('HGET', P .. ':j', change.id)
  if not record then
    return 'm'
  end
  if change.is_success and struct.unpack('>I4', record) + 1 == change.version then
    local ended = call('ZSCORE', P .. ':ok:' .. place_of(lane_in(record)).queue, change.id)
    if ended and tonumber(ended) == change.at then
      return 'y'
    end
  end
  return 'r'
end

-- Reads changes: for each 30 bytes (kind, id, version, when), and four more arguments from `next` on for those that are
-- no plain success of the calling session.
local function read_changes(blob, session, next)
  local changes = {}
  for first = 1, #blob, 30 do
    local kind, id, version, at, is_success = struct.unpack('>Bc16I4dB', blob, first)
    local change = {id = id, version = version, at = at, is_success = is_success == 1, session = session, event = ''}
    if kind == 1 then
      local info = cmsgpack.unpack(ARGV[next])
      change.session, change.state, change.wait, change.due = info[1], info[2], info[3], info[4]
      change.new_version, change.result_until, change.lane, change.yields = info[5], info[6], info[7], info[8]
      change.record, change.event, change.result = ARGV[next + 1], ARGV[next + 2], ARGV[next + 3]
      next = next + 4
    end
    changes[#changes + 1] = change
  end
  return changes
end

local function read_leases(changes)
  local by_session = {}
  for number, change in ipairs(changes) do
    if change.session ~= '' then
      local list = by_session[change.session]
      if not list then
        list = {ids = {}, numbers = {}}
        by_session[change.session] = list
      end
      list.ids[#list.ids + 1], list.numbers[#list.numbers + 1] = change.id, number
    end
  end
  local names, known = {}, {}
  for session, list in pairs(by_session) do
    for number, packed in ipairs(fetch(P .. ':y:' .. session, list.ids)) do
      local change = changes[list.numbers[number]]
      if packed then
        local _, _, version, lane = lease_of(packed)
        if version == change.version then
          change.leased_from = lane
          if not known[lane] then
            known[lane] = true
            names[#names + 1] = lane
          end
        end
      end
    end
  end
  meet_places(names)
end

-- Carries out changes. Answers one letter each: (a)pplied, alread(y), (r)efused, (m)issing; the queues that have new
-- ready jobs; and those in which slots came free.
local function settle(changes, now)
  read_leases(changes)
  local lane_names, yielding = {}, {}
  for _, change in ipairs(changes) do
    if change.lane then
      lane_names[#lane_names + 1] = change.lane
    end
    if change.yields then
      yielding[#yielding + 1] = change.id
    end
  end
  meet_lanes(lane_names)
  local wishes, is_leased = wishes_of(yielding), leased_of(changes)
  local answers, applied, line = {}, {}, new_line()
  local ended, records, events, succeeded = {}, {}, {}, {}
  local released, unleased, results, result_times, latest = {}, {}, {}, {}, 0
  for number, change in ipairs(changes) do
    local id, from = change.id, nil
    if applied[id] then
      from = nil -- the first change of a batch is heard; whatever else it says of the same job has not seen it
    elseif change.session ~= '' then
      from = change.leased_from
    else
      local lane = take_out(id, change.version, is_leased)
      from = lane and lane.name
    end
    if not from then
      local is_repeat = applied[id] and applied[id].event == change.event and applied[id].at == change.at
        and applied[id].is_success == change.is_success
      answers[number] = is_repeat and 'y' or why_not(change)
    else
      answers[number] = 'a'
      applied[id] = change
      if change.session ~= '' then
        released[from] = (released[from] or 0) + 1
        local list = unleased[change.session]
        if not list then
          list = {}
          unleased[change.session] = list
        end
        list[#list + 1] = id
      end
      if change.is_success then
        local queue = place_of(from).queue
        local list = succeeded[queue]
        if not list then
          list = {}
          succeeded[queue] = list
        end
        list[#list + 1], list[#list + 2] = change.at, id
      else
        local lane, cancel = lanes[change.lane], change.yields and wishes[id]
        if cancel then
          -- Somebody had asked it to stop: it does not wait again.
          change.cancel = ending(change.record, 'C', change.at, cancel)
          change.record, change.state, change.due = finish(change.record, GIVEN_UP, change.at), GIVEN_UP, change.at
        end
        records[#records + 1], records[#records + 2] = id, change.record
        if change.state == WAITING then
          stand(line, lane, id, change.new_version, change.wait, change.due, now, true)
        else
          local key = P .. ENDED[change.state] .. lane.place.queue
          ended[key] = ended[key] or {}
          table.insert(ended[key], change.due)
          table.insert(ended[key], id)
          local counter = ENDED_COUNTER[change.state]
          lane[counter] = lane[counter] + 1
          lane.is_changed = true
        end
      end
      if change.event ~= '' then
        events[#events + 1], events[#events + 2] = id, change.event
        latest = max(latest, change.at)
        if change.state == GIVEN_UP then
          events[#events + 1], events[#events + 2] = id, change.cancel
        end
      end
      if change.result_until then
        results[#results + 1], results[#results + 2] = id, change.result
        result_times[#result_times + 1], result_times[#result_times + 2] = change.result_until, id
      end
    end
  end
  many('HSET', P .. ':j', records)
  form(line)
  for key, list in pairs(ended) do
    many('ZADD', key, list)
  end
  for queue, list in pairs(succeeded) do
    keep(queue, list)
  end
  tell(events, latest)
  many('HSET', P .. ':rs', results)
  many('ZADD', P .. ':rx', result_times)
  local freed = {}
  for name, count in pairs(released) do
    release(place_of(name), count)
    freed[place_of(name).queue] = true
  end
  local is_marked = next(unleased) and call('HLEN', P .. ':mk') > 0
  for session, ids in pairs(unleased) do
    many('HDEL', P .. ':y:' .. session, ids)
    if is_marked then
      many('HDEL', P .. ':mk', ids)
    end
  end
  return concat(answers), line.rung, freed
end
