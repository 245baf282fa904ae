-- Waiting jobs: a ready job stands in its lane, one that is due later in a sorted set of its queue and wait.
-- Jobs are collected in a batch (`new_waiting`, `add_fresh`, `add_waiting`) and written at once (`write_waiting`).
--
-- A lane is taken from in the order in which its jobs became ready. Fresh jobs, which were ready when they were enqueued,
-- are in that order already and stand in a list. Jobs that became ready later stand in a sorted set by that time. The jobs
-- of a lane whose jobs have an SLA all stand in such a set, by their SLA.
--
-- needs calls: tag, call, max, min, call_many, fetch_fields
-- needs record: is_sound, sound, lost_lane, entry_of, lane_in, sla_in
-- needs lanes: lanes, lane_ref, load_lanes, relist
-- needs tried: list_tried, unlist_tried
-- needs expiring: add_deadline, add_expiry, remove_expiry, write_expiry
-- exports: DELAYED_COUNTERS, DELAYS, delayed_key, fresh_key, requeued_key, id_time, new_waiting, add_fresh, add_waiting
-- exports: write_waiting, pop_lane, promote, next_due, ready_since

-- A lane's counter of jobs that are due later, by the number that a record has for what its job waits for: turn,
-- schedule, retry, gate, budget.
DELAYED_COUNTERS = {[0] = 'scheduled', 'scheduled', 'retrying', 'parked', 'parked'}
-- The sorted sets of such jobs: 1 of those that were not tried, 2 of those that wait for a retry, 3 of parked ones.
DELAYS = {[0] = 1, 1, 2, 3, 3}

function delayed_key(queue, wait)
  return tag .. ':delayed:' .. queue .. '\0' .. DELAYS[wait]
end

function fresh_key(lane_name)
  return tag .. ':fresh:' .. lane_name
end

function requeued_key(lane_name)
  return tag .. ':requeued:' .. lane_name
end

-- Returns the time in an id, in ms: when its job was enqueued.
function id_time(id)
  local high, low = struct.unpack('>I2I4', id)
  return high * 4294967296 + low
end

-- After `write_waiting`, `ready_queues` have new ready jobs, and `sooner_queues` a job that is due before all others: workers
-- that wait for the next one have to know.
function new_waiting(now)
  return {now = now, fresh = {}, requeued = {}, delayed = {}, tried = {}, ready_queues = {}, sooner_queues = {}}
end

local function add_delayed(waiting, lane, job)
  local key = delayed_key(lane.ref.queue, job.wait)
  local list = waiting.delayed[key]
  if not list then
    list = {queue = lane.ref.queue, first = job.due}
    waiting.delayed[key] = list
  end
  list[#list + 1], list[#list + 2] = job.due, job.id
  list.first = min(list.first, job.due)
  if DELAYS[job.wait] > 1 then
    list_tried(waiting.tried, job, DELAYS[job.wait])
  end
  local counter = DELAYED_COUNTERS[job.wait]
  lane[counter] = lane[counter] + 1
  lane.is_changed = true
end

-- Counts a ready job, and returns the list of those of its lane.
local function ready_list(waiting, lane, lists, count_command, key)
  local list = lists[lane.name]
  if not list then
    -- Fails before anything is written if the key holds another type.
    call(count_command, key)
    list = {}
    lists[lane.name] = list
  end
  lane.ready = lane.ready + 1
  waiting.ready_queues[lane.ref.queue] = true
  return list
end

-- Adds a ready job to the sorted set of its lane.
local function add_requeued(waiting, lane, job)
  local list = ready_list(waiting, lane, waiting.requeued, 'ZCARD', requeued_key(lane.name))
  local at = lane.is_by_sla and sla_in(job.record) or max(job.due, id_time(job.id))
  list[#list + 1], list[#list + 2] = at, entry_of(job.id, job.version)
  lane.requeued = lane.requeued + 1
end

-- Adds a job that is enqueued: a table with `id`, `version`, `wait`, `due`, `deadline` (0: none) and `record`.
function add_fresh(waiting, lane, job)
  if job.due > waiting.now then
    add_delayed(waiting, lane, job)
    add_expiry(job.id, job.deadline)
  elseif lane.is_by_sla then
    add_expiry(job.id, job.deadline)
    add_requeued(waiting, lane, job)
  else
    add_deadline(lane, job.id, job.deadline)
    local list = ready_list(waiting, lane, waiting.fresh, 'LLEN', fresh_key(lane.name))
    list[#list + 1] = entry_of(job.id, job.version)
  end
end

-- Adds a job that waits again, or whose time has come. `expires` is new only of the former.
function add_waiting(waiting, lane, job)
  add_expiry(job.id, job.expires)
  if job.due > waiting.now then
    add_delayed(waiting, lane, job)
  else
    add_requeued(waiting, lane, job)
  end
end

function write_waiting(waiting)
  for name, entries in pairs(waiting.fresh) do
    call_many('RPUSH', fresh_key(name), entries)
    relist(lanes[name])
  end
  for name, times_and_entries in pairs(waiting.requeued) do
    call_many('ZADD', requeued_key(name), times_and_entries)
    relist(lanes[name])
  end
  for key, list in pairs(waiting.delayed) do
    local head = call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]
    if not head or list.first < tonumber(head) then
      waiting.sooner_queues[list.queue] = true
    end
    call_many('ZADD', key, list)
  end
  for key, list in pairs(waiting.tried) do
    call_many('ZADD', key, list)
  end
  write_expiry()
end

-- Returns since when the first job of a lane is ready; nil if there is none, or if the lane is in the order of SLAs. An entry
-- of a job that left its lane otherwise counts too.
function ready_since(lane_name)
  if lane_ref(lane_name).priority % 2 == 1 then
    return nil
  end
  local fresh = call('LINDEX', fresh_key(lane_name), 0)
  local requeued = tonumber(call('ZRANGE', requeued_key(lane_name), 0, 0, 'WITHSCORES')[2])
  local enqueued = fresh and id_time(fresh)
  return enqueued and requeued and min(enqueued, requeued) or enqueued or requeued
end

-- Takes so many entries off a lane, fresh jobs and others in the order in which they became ready.
function pop_lane(lane, count)
  local fresh_list, requeued_set = fresh_key(lane.name), requeued_key(lane.name)
  if lane.requeued == 0 then
    return call('LPOP', fresh_list, count) or {}
  end
  local fresh = call('LRANGE', fresh_list, 0, count - 1)
  local requeued = call('ZRANGE', requeued_set, 0, count - 1, 'WITHSCORES')
  local entries, fresh_taken, requeued_taken = {}, 0, 0
  while #entries < count do
    local one, other = fresh[fresh_taken + 1], requeued[2 * requeued_taken + 1]
    if not one and not other then
      break
    end
    local lead = one and other and tonumber(requeued[2 * requeued_taken + 2]) - id_time(one) or 0
    if one and (not other or lead > 0 or lead == 0 and one < other) then
      entries[#entries + 1], fresh_taken = one, fresh_taken + 1
    else
      entries[#entries + 1], requeued_taken = other, requeued_taken + 1
    end
  end
  if fresh_taken > 0 then
    call('LPOP', fresh_list, fresh_taken)
  end
  if requeued_taken > 0 then
    call('ZREMRANGEBYRANK', requeued_set, 0, requeued_taken - 1)
    lane.requeued = lane.requeued - requeued_taken
    local ids = {}
    for number = 1, requeued_taken do
      ids[number] = string.sub(requeued[2 * number - 1], 1, 16)
    end
    remove_expiry(ids)
  end
  return entries
end

-- Returns the keys of a queue's jobs that are due later, but for those that are paused.
local function unpaused_keys(queue)
  local keys = {}
  for wait = 1, 3 do
    local is_paused = wait == 1 and queue.pauses % 2 == 1 or wait == 2 and queue.pauses >= 2
    if not is_paused then
      keys[#keys + 1] = delayed_key(queue.name, wait)
    end
  end
  return keys
end

-- Moves jobs of a queue that are due to their lanes, so many of each wait.
function promote(queue, now, limit)
  local waiting
  for _, key in ipairs(unpaused_keys(queue)) do
    local found = call('ZRANGEBYSCORE', key, '-inf', now, 'WITHSCORES', 'LIMIT', 0, limit)
    if found[1] then
      waiting = waiting or new_waiting(now)
      local due, times = {}, {}
      for number = 1, #found / 2 do
        due[number], times[number] = found[2 * number - 1], tonumber(found[2 * number])
      end
      local records, names, is_lost = fetch_fields(tag .. ':jobs', due), {}, {}
      for number, id in ipairs(due) do
        local record = records[number] or ''
        if not is_sound(record) then
          -- Its lane, which counts it, is lost with it.
          is_lost[number], record = true, sound(record, 0, lost_lane(queue.name))
          call('HSET', tag .. ':jobs', id, record)
        end
        records[number], names[number] = record, lane_in(record)
      end
      load_lanes(names)
      local delays = {}
      for number, id in ipairs(due) do
        local version, _, wait = struct.unpack('>I4BB', records[number])
        local lane, counter = lanes[names[number]], DELAYED_COUNTERS[wait]
        delays[number] = is_lost[number] and 1 or DELAYS[wait]
        if not is_lost[number] then
          lane[counter] = lane[counter] - 1
        end
        add_waiting(waiting, lane, {
          id = id, version = version, wait = wait, due = times[number], record = records[number],
        })
      end
      call_many('ZREM', key, due)
      unlist_tried(due, records, delays)
    end
  end
  if waiting then
    write_waiting(waiting)
  end
end

-- Returns when the next job of a queue is due, or nil.
function next_due(queue)
  local soonest
  for _, key in ipairs(unpaused_keys(queue)) do
    local head = call('ZRANGE', key, 0, 0, 'WITHSCORES')
    if head[2] then
      soonest = min(soonest or math.huge, tonumber(head[2]))
    end
  end
  return soonest
end
