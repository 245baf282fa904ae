-- Waiting jobs: a ready job stands in its lane, one that is due later in a sorted set of its queue and wait.
-- Jobs are collected in a batch (`new_waiting`, `add_waiting`) and written at once (`write_waiting`).
--
-- needs calls: tag, call, floor, min, call_many, fetch_fields, list_in
-- needs record: is_sound, sound, lost_lane, entry_of, lane_in
-- needs lanes: lanes, load_lanes, relist
-- exports: DELAYED_COUNTERS, delayed_key, new_waiting, add_waiting, write_waiting, promote, next_due

-- A lane's counter of jobs that are due later, by the number that a record has for what its job waits for: turn,
-- schedule, retry, gate, budget.
DELAYED_COUNTERS = {[0] = 'scheduled', 'scheduled', 'retrying', 'parked', 'parked'}
local DELAYS = {[0] = 1, 1, 2, 3, 3}

function delayed_key(queue, wait)
  return tag .. ':delayed:' .. queue .. '\0' .. DELAYS[wait]
end

function new_waiting(now)
  return {now = now, returned = {}, added = {}, delayed = {}, ready_queues = {}}
end

-- Adds a job: a table with `id`, `version`, `wait` and `due`. A job that returns stands before those that are new.
function add_waiting(waiting, lane, job, is_returned)
  local queue = lane.ref.queue
  if job.due > waiting.now then
    local list = list_in(waiting.delayed, delayed_key(queue, job.wait))
    list[#list + 1], list[#list + 2] = job.due, job.id
    local counter = DELAYED_COUNTERS[job.wait]
    lane[counter] = lane[counter] + 1
    lane.is_changed = true
  else
    local lists = is_returned and waiting.returned or waiting.added
    local list = lists[lane.name]
    if not list then
      -- Fails before anything is written if the key holds another type.
      call('LLEN', tag .. ':ready:' .. lane.name)
      list = {}
      lists[lane.name] = list
    end
    list[#list + 1] = entry_of(job.id, job.version)
    lane.ready = lane.ready + 1
    waiting.ready_queues[queue] = true
  end
end

function write_waiting(waiting)
  for name, entries in pairs(waiting.returned) do
    for first = 1, floor(#entries / 2) do
      local last = #entries + 1 - first
      entries[first], entries[last] = entries[last], entries[first]
    end
    call_many('LPUSH', tag .. ':ready:' .. name, entries)
    relist(lanes[name])
  end
  for name, entries in pairs(waiting.added) do
    call_many('RPUSH', tag .. ':ready:' .. name, entries)
    relist(lanes[name])
  end
  for key, list in pairs(waiting.delayed) do
    call_many('ZADD', key, list)
  end
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
    local due = call('ZRANGEBYSCORE', key, '-inf', now, 'LIMIT', 0, limit)
    if due[1] then
      waiting = waiting or new_waiting(now)
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
      for number, id in ipairs(due) do
        local version, _, wait = struct.unpack('>I4BB', records[number])
        local lane, counter = lanes[names[number]], DELAYED_COUNTERS[wait]
        if not is_lost[number] then
          lane[counter] = lane[counter] - 1
        end
        add_waiting(waiting, lane, {id = id, version = version, wait = wait, due = 0}, false)
      end
      call_many('ZREM', key, due)
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
