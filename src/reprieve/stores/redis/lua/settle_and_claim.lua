-- A session settles what it finished and claims more jobs; or changes are applied without a session.
-- docs/extend/claim.md explains the steps on all stores.
--
-- needs calls: tag, call, min, concat, format, call_many, fetch_fields, split, write_even_when_full, notify
-- needs record: sound
-- needs lanes: flush
-- needs waiting: new_waiting
-- needs sessions: read_session, write_session, unpack_lease
-- needs changes: read_changes
-- needs settle: settle
-- needs claim: return_blocked, claim_from_queue
-- needs series: add_deltas
-- needs events: record_events
-- KEYS     1: the partition
-- ARGV     1: now, session ('' for none), number of the call, limit, queues, settings of the fair choice, whether the claim
--             asks other partitions too, and if it excludes tasks: these, and which part of tenants and lanes to look at (msgpack)
--          2: heads of the changes, and from 5 on what some of them need: see settle.lua
--          3: what the session has counted for series, packed; '' for nothing
--          4: starts of jobs that earlier calls have leased: id (16), length (4) and event of each
-- Returns: {'dead'}: the session is not open; nothing was done
--          {'stale', number of the session's last call}; nothing was done
--          {'ok', results: see `settle`, next time or '', id of the last notification,
--           number of the session's call before, ids of the jobs (16 bytes each), record, record, …}
--          {'again', …}: the call repeats the last one. As 'ok', but with the jobs that the session still holds of that
--           call, instead of ids and records: '', then id, when it was leased, record, …

local now, session_name, number, limit, queue_names, settings, is_part, exclude = unpack(cmsgpack.unpack(ARGV[1]))
local heads, counted, starts = ARGV[2], ARGV[3], ARGV[4]

local function last_notification()
  local last = call('XREVRANGE', tag .. ':notifications', '+', '-', 'COUNT', 1)[1]
  return last and last[1] or '0-0'
end

local function repeated(session)
  local next_at = session.next_at and format('%.0f', session.next_at) or ''
  local answer = {'again', session.results, next_at, last_notification(), session.previous, ''}
  -- A dead session learns what became of its changes; its jobs belong to others.
  local ids = session.is_dead and {} or split(session.ids, 16)
  local records = fetch_fields(tag .. ':jobs', ids)
  for index, lease in ipairs(fetch_fields(tag .. ':leases:' .. session.name, ids)) do
    if lease then
      local leased_by, at, version, lane = unpack_lease(lease)
      if leased_by == number then
        answer[#answer + 1], answer[#answer + 2] = ids[index], format('%.0f', at)
        answer[#answer + 1] = sound(records[index] or '', version - 1, lane)
      end
    end
  end
  return answer
end

-- Returns the arguments of exclusions, with the tasks as a set; false if the claim excludes none.
local function excluded()
  if not exclude then
    return false
  end
  local names, tenants, lanes = unpack(exclude)
  local tasks = {}
  for _, name in ipairs(names) do
    tasks[name] = true
  end
  return {tasks = tasks, tenants = tenants, lanes = lanes}
end

-- Leases jobs of the queues, in their order. Returns their ids, their records, and when there may be more.
local function claim_jobs(session)
  local next_at = return_blocked(now, settings) and now or math.huge
  local claim = {
    number = number, now = now, settings = settings, exclude = excluded(), ids = {}, records = {}, leases = {},
  }
  for _, name in ipairs(queue_names) do
    local left = limit - #claim.ids
    if left > 0 then
      next_at = min(next_at, claim_from_queue(claim, name, left) or math.huge)
    end
  end
  call_many('HSET', tag .. ':leases:' .. session.name, claim.leases)
  if #claim.ids >= limit then
    next_at = now
  end
  return claim.ids, claim.records, next_at < math.huge and next_at or nil
end

-- Records the starts, before what became of their jobs.
local function tell_starts()
  local events, place = {}, 1
  while place <= #starts do
    local id, event, following = struct.unpack('>c16I4c0', starts, place)
    events[#events + 1], events[#events + 2], place = id, event, following
  end
  record_events(events, now)
end

-- Wakes other workers for what this call made ready or released, and did not take itself. A caller with room for more
-- waits for the next job itself, unless another partition fills it. Returns the id of the last notification, or nil.
local function notify_others(waiting, released_queues, is_filled)
  local ready_queues = waiting.ready_queues
  if is_filled or is_part then
    for name in pairs(waiting.sooner_queues) do
      ready_queues[name] = true
    end
  end
  if is_filled then
    for name in pairs(released_queues) do
      ready_queues[name] = ready_queues[name] or call('EXISTS', tag .. ':candidates:' .. name) == 1 or nil
    end
    if next(released_queues) and call('ZCOUNT', tag .. ':rechecks', '-inf', now) > 0 then
      ready_queues = {['*'] = true}
    end
  end
  local last
  for name in pairs(ready_queues) do
    last = notify(name)
  end
  return last
end

local session
if session_name ~= '' then
  session = read_session(session_name)
  if not session then
    return {'dead'}
  elseif number < session.number then
    return {'stale', format('%.0f', session.number)}
  elseif number == session.number then
    return repeated(session)
  elseif session.is_dead and heads == '' then
    return {'dead'}
  end
end

write_even_when_full()
if starts ~= '' and not session.is_dead then
  tell_starts()
end
local results, waiting, released_queues = '', new_waiting(now), {}
if heads ~= '' then
  results, waiting, released_queues = settle(read_changes(heads, session_name, ARGV, 5), now)
end
local ids, records, next_at = {}, {}, nil
if session and not session.is_dead and limit > 0 then
  ids, records, next_at = claim_jobs(session)
end
flush()
if counted ~= '' then
  add_deltas({counted})
end
local previous = session and session.number or 0
if session and (heads ~= '' or counted ~= '' or starts ~= '' or ids[1]) then
  -- A call that did nothing is not noted: it can be made again as it is.
  session.number, session.results, session.next_at, session.ids = number, results, next_at or false, concat(ids)
  session.previous = previous
  write_session(session)
end
local notified = notify_others(waiting, released_queues, limit == 0 or #ids >= limit) or last_notification()
local answer = {
  'ok', results, next_at and format('%.0f', next_at) or '', notified, previous, concat(ids),
}
local count = #answer
for index = 1, #records do
  answer[count + index] = records[index]
end
return answer
