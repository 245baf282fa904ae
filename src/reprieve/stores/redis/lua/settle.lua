-- Applies changes to jobs. Each change is checked against the lease or the version that it guards; then all that apply
-- are written at once.
--
-- changes.lua says what a change is.
--
-- needs calls: tag, call, max, concat, call_many, list_in
-- needs record: WAITING, GIVEN_UP, is_sound, lane_in, finish, ending, entry_of
-- needs lanes: lanes, lane_ref, load_lanes, lane_of, relist, release
-- needs expiring: remove_expiry
-- needs waiting: DELAYED_COUNTERS, DELAYS, delayed_key, requeued_key, new_waiting, add_waiting, write_waiting
-- needs tried: unlist_tried
-- needs leftovers: remove_fresh
-- needs events: record_events, has_event
-- needs audit: record_audit
-- needs sessions: find_leases, cancel_requests
-- needs finished: keep_succeeded
-- needs causes: new_failures, add_failure, write_failures
-- needs ended: FINISHED_COUNTERS, new_index_changes, list_ended, unlist_ended, write_index
-- needs series: ending_delta, add_deltas
-- needs changes: read_leases
-- exports: can_settle, settle

-- Reads everything that the changes need, and returns the settlement: what is to be written.
local function new_settlement(changes, now)
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
  load_lanes(lane_names)
  return {
    changes = changes, applied = {}, cancel_requests = cancel_requests(yielding), leased = false,
    waiting = new_waiting(now), records = {}, index = new_index_changes(), failures = new_failures(), succeeded = {},
    events = {}, latest_event_at = 0, audit = {}, results = {}, result_times = {}, released = {}, unleased = {},
    deltas = {},
  }
end

-- Whether a job runs, of those that changes without a session are about. Leases are read once, if at all.
local function is_leased(settlement, id)
  if not settlement.leased then
    local ids, leased = {}, {}
    for _, change in ipairs(settlement.changes) do
      if change.session == '' then
        ids[#ids + 1] = change.id
      end
    end
    for number in pairs(find_leases(ids)) do
      leased[ids[number]] = true
    end
    settlement.leased = leased
  end
  return settlement.leased[id]
end

-- Takes a job that does not run from where it is. Returns its lane's name, or nil if the job is not as the change saw it.
local function take_out(settlement, id, expected)
  local record = call('HGET', tag .. ':jobs', id)
  if not record or not is_sound(record) then
    return
  end
  local version, state, wait = struct.unpack('>I4BB', record)
  if version ~= expected then
    return
  end
  local lane = lane_of(lane_in(record))
  local queue = lane.ref.queue
  if state ~= WAITING then
    unlist_ended(settlement.index, id, record)
    local counter = FINISHED_COUNTERS[state]
    lane[counter] = lane[counter] - 1
  elseif call('ZREM', delayed_key(queue, wait), id) == 1 then
    unlist_tried({id}, {record}, {DELAYS[wait]})
    remove_expiry({id})
    local counter = DELAYED_COUNTERS[wait]
    lane[counter] = lane[counter] - 1
  elseif lane.requeued > 0 and call('ZREM', requeued_key(lane.name), entry_of(id, version)) == 1 then
    remove_expiry({id})
    lane.requeued = lane.requeued - 1
    lane.ready = lane.ready - 1
  elseif call('ZSCORE', tag .. ':succeeded:' .. queue, id) or is_leased(settlement, id) then
    return
  else
    remove_fresh(lane, id, version)
    remove_expiry({id})
  end
  relist(lane)
  return lane.name
end

-- Returns the result of a change that does not apply: it was applied before, its job is missing, or it is refused.
local function result_without_effect(settlement, change)
  local first = settlement.applied[change.id]
  if first and first.event == change.event and first.at == change.at and first.is_success == change.is_success then
    return 'already'
  elseif change.event ~= '' and has_event(change.id, change.event) then
    return 'already'
  end
  local record = call('HGET', tag .. ':jobs', change.id)
  if not record then
    return 'missing'
  end
  if change.is_success and is_sound(record) and struct.unpack('>I4', record) + 1 == change.expected then
    local ended = call('ZSCORE', tag .. ':succeeded:' .. lane_ref(lane_in(record)).queue, change.id)
    if ended and tonumber(ended) == change.at then
      return 'already'
    end
  end
  return 'refused'
end

-- Lets a job wait again, or end as the change says or as its cancel request wants.
local function add_job(settlement, change)
  local lane, cancel_request = lanes[change.lane], change.yields and settlement.cancel_requests[change.id]
  if change.is_survived_failure then
    add_failure(settlement.failures, change.id, change.record, change.at)
  end
  if cancel_request then
    change.cancelled = ending(change.record, 'C', change.at, cancel_request)
    change.record, change.state, change.due = finish(change.record, GIVEN_UP, change.at), GIVEN_UP, change.at
  end
  local records = settlement.records
  records[#records + 1], records[#records + 2] = change.id, change.record
  if change.state == WAITING then
    add_waiting(settlement.waiting, lane, change)
  else
    list_ended(settlement.index, change.id, change.record, change.due)
    local counter = FINISHED_COUNTERS[change.state]
    lane[counter] = lane[counter] + 1
    lane.is_changed = true
  end
end

local function add_event(settlement, change)
  local events = settlement.events
  events[#events + 1], events[#events + 2] = change.id, change.event
  settlement.latest_event_at = max(settlement.latest_event_at, change.at)
  if change.cancelled then
    events[#events + 1], events[#events + 2] = change.id, change.cancelled
  end
end

local function add_delta(deltas, change)
  if change.delta ~= '' then
    deltas[#deltas + 1] = change.delta
  end
  if change.cancelled then
    deltas[#deltas + 1] = ending_delta('C', change.at, change.lane)
  end
end

-- Adds a change that applies to what is to be written.
local function apply(settlement, change, left)
  local id, session = change.id, change.session
  if session ~= '' then
    local released, unleased = settlement.released, settlement.unleased
    released[left] = (released[left] or 0) + 1
    local ids = unleased[session] or list_in(unleased, session)
    ids[#ids + 1] = id
  end
  if change.is_success then
    local queue, succeeded = lane_ref(left).queue, settlement.succeeded
    local list = succeeded[queue] or list_in(succeeded, queue)
    list[#list + 1], list[#list + 2] = change.at, id
  else
    add_job(settlement, change)
  end
  if change.event ~= '' then
    add_event(settlement, change)
    add_delta(settlement.deltas, change)
  end
  if change.audit ~= '' then
    settlement.audit[#settlement.audit + 1] = change.audit
  end
  if change.result_until then
    local results, times = settlement.results, settlement.result_times
    results[#results + 1], results[#results + 2] = id, change.result
    times[#times + 1], times[#times + 2] = change.result_until, id
  end
end

local function write(settlement)
  call_many('HSET', tag .. ':jobs', settlement.records)
  write_waiting(settlement.waiting)
  write_index(settlement.index)
  write_failures(settlement.failures)
  for queue, times_and_ids in pairs(settlement.succeeded) do
    keep_succeeded(queue, times_and_ids)
  end
  record_events(settlement.events, settlement.latest_event_at)
  record_audit(settlement.audit)
  add_deltas(settlement.deltas)
  call_many('HSET', tag .. ':results', settlement.results)
  call_many('ZADD', tag .. ':result_expiry', settlement.result_times)
  local has_annotations = next(settlement.unleased) and call('HLEN', tag .. ':annotations') > 0
  for session, ids in pairs(settlement.unleased) do
    call_many('HDEL', tag .. ':leases:' .. session, ids)
    if has_annotations then
      call_many('HDEL', tag .. ':annotations', ids)
    end
  end
end

-- Gives back the slots of jobs that have ended; returns their queues.
local function release_slots(settlement)
  local queues = {}
  for name, count in pairs(settlement.released) do
    local ref = lane_ref(name)
    release(ref, count)
    queues[ref.queue] = true
  end
  return queues
end

-- Whether a job that does not run is as the change saw it; nothing is changed.
local function can_take_out(settlement, id, expected)
  local record = call('HGET', tag .. ':jobs', id)
  if not record or not is_sound(record) then
    return false
  end
  local version, state, wait = struct.unpack('>I4BB', record)
  if version ~= expected then
    return false
  end
  local lane = lane_of(lane_in(record))
  if state ~= WAITING or call('ZSCORE', delayed_key(lane.ref.queue, wait), id)
    or lane.requeued > 0 and call('ZSCORE', requeued_key(lane.name), entry_of(id, version)) then
    return true
  end
  return not (call('ZSCORE', tag .. ':succeeded:' .. lane.ref.queue, id) or is_leased(settlement, id))
end

-- Returns the results that `settle` would have, without changing anything, and whether all changes apply.
function can_settle(changes, now)
  local settlement, results, all_apply = new_settlement(changes, now), {}, true
  for number, change in ipairs(changes) do
    local applies = false
    if not settlement.applied[change.id] then
      applies = change.session == '' and can_take_out(settlement, change.id, change.expected) or change.leased_from ~= nil
    end
    if applies then
      settlement.applied[change.id] = change
    end
    results[number] = applies and 'applied' or result_without_effect(settlement, change)
    all_apply = all_apply and applies
  end
  return all_apply, concat(results, ' ')
end

-- Applies changes. Returns their results ('applied', 'already', 'refused' or 'missing', separated by spaces, or just
-- 'applied' if all are); the queues that have new ready jobs; and the queues in which slots were released.
function settle(changes, now)
  local settlement, results = new_settlement(changes, now), {}
  local applied, has_failed = settlement.applied, false
  for number, change in ipairs(changes) do
    local left -- the lane that the job leaves; nil if the change does not apply
    if applied[change.id] then
      left = nil -- the first change of a job applies; the others guard a version that is gone
    elseif change.session == '' then
      left = take_out(settlement, change.id, change.expected)
    else
      left = change.leased_from
    end
    if left then
      applied[change.id] = change
      apply(settlement, change, left)
      results[number] = 'applied'
    else
      results[number], has_failed = result_without_effect(settlement, change), true
    end
  end
  write(settlement)
  return has_failed and concat(results, ' ') or 'applied', settlement.waiting, release_slots(settlement)
end
