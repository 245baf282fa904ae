-- New jobs: which of them are stored already, whose unique keys are taken, and what is written for the others.
--
-- needs calls: tag, call, call_many, fetch_fields
-- needs forgotten: remembered_ids
-- needs tenants: queue_of
-- needs finished: holds_key
-- needs lanes: lanes, load_lanes
-- needs waiting: new_waiting, add_fresh, write_waiting
-- needs series: count_enqueued
-- needs events: record_events
-- exports: store_new_jobs

local function read_jobs(lane_names, index)
  local ids, jobs, heads = {}, {}, ARGV[index]
  for first = 1, #heads, 29 do
    local id, lane, wait, due, version = struct.unpack('>c16I2BdI2', heads, first)
    ids[#ids + 1] = id
    local record = ARGV[index + 2 + #ids]
    jobs[#jobs + 1] = {
      id = id, lane = lane_names[lane], wait = wait, due = due, version = version, has_holder = false,
      event = false, deadline = struct.unpack('>d', record, 7), record = record,
    }
  end
  return ids, jobs
end

-- Gives each job that tells all the event of its enqueue.
local function read_events(packed, jobs)
  local place = 1
  while place <= #packed do
    local number, event, following = struct.unpack('>I2I4c0', packed, place)
    jobs[number].event, place = event, following
  end
end

-- Returns which jobs are not to be stored, by id: they are stored, or were and are remembered.
local function known_ids(ids, is_relayed)
  local known = {}
  for number, record in ipairs(fetch_fields(tag .. ':jobs', ids)) do
    if record then
      known[ids[number]] = true
    end
  end
  if call('EXISTS', tag .. ':leftovers') == 1 then
    for number, count in ipairs(fetch_fields(tag .. ':leftovers', ids)) do
      if count then
        -- Cancelled and forgotten, while its entry still stands in a lane.
        known[ids[number]] = true
      end
    end
  end
  if is_relayed and ids[1] then
    for number, until_at in ipairs(call('ZMSCORE', tag .. ':relayed', unpack(ids))) do
      if until_at then
        known[ids[number]] = true
      end
    end
  end
  for number in pairs(remembered_ids(ids)) do
    known[ids[number]] = true
  end
  return known
end

-- Returns the unique keys of new jobs: each with the number of its job and until when it is kept.
local function read_keys(packed, ids, known)
  local keys = {}
  for first = 1, #packed, 26 do
    local number, name, until_at = struct.unpack('>I2c16d', packed, first)
    if not known[ids[number]] then
      keys[#keys + 1] = {name = name, number = number, until_at = until_at}
    end
  end
  return keys
end

-- Returns the ids of the jobs that have these keys, by key.
local function key_holders(keys, now)
  local names, holders = {}, {}
  for index, key in ipairs(keys) do
    names[index] = key.name
  end
  for index, packed in ipairs(fetch_fields(tag .. ':unique_keys', names)) do
    if packed then
      local holder, until_at = struct.unpack('>c16d', packed)
      if until_at > now or holds_key(holder) then
        holders[names[index]] = holder
      end
    end
  end
  return holders
end

-- Returns for each key that is taken the number of its job and the holder; and what to write for those that are free.
local function take_keys(keys, ids, jobs, now)
  local taken, values, times = {}, {}, {}
  local holders = key_holders(keys, now)
  for _, key in ipairs(keys) do
    local id, holder = ids[key.number], holders[key.name]
    if holder then
      taken[#taken + 1], taken[#taken + 2] = key.number, holder
      jobs[key.number].has_holder = holder ~= id
    else
      holders[key.name] = id
      values[#values + 1], values[#values + 2] = key.name, struct.pack('>c16d', id, key.until_at)
      times[#times + 1], times[#times + 2] = key.until_at, key.name
    end
  end
  return taken, values, times
end

local function store_jobs(lane_names, jobs, known, key_values, key_times, now)
  load_lanes(lane_names)
  local waiting, records, counts, events = new_waiting(now), {}, {}, {}
  for _, job in ipairs(jobs) do
    if not known[job.id] and not job.has_holder then
      known[job.id] = true
      local lane = lanes[job.lane]
      add_fresh(waiting, lane, job)
      counts[job.lane] = (counts[job.lane] or 0) + 1
      records[#records + 1], records[#records + 2] = job.id, job.record
      if job.event then
        events[#events + 1], events[#events + 2] = job.id, job.event
      end
      local queue = queue_of(lane.ref.queue)
      queue.is_changed = queue.is_changed or not queue.is_known
    end
  end
  if records[1] then
    call_many('HSET', tag .. ':jobs', records)
    write_waiting(waiting)
    call_many('HSET', tag .. ':unique_keys', key_values)
    call_many('ZADD', tag .. ':unique_key_expiry', key_times)
    count_enqueued(now, counts)
    record_events(events, now)
    for queue in pairs(waiting.sooner_queues) do
      waiting.ready_queues[queue] = true
    end
  end
  return waiting.ready_queues
end

-- Stores the jobs whose heads, keys, events and records stand in ARGV from `index` on; the caller flushes. Returns for each key that
-- was taken the number of its job and the id of the job that has it; the queues with new ready jobs; and the ids of all jobs.
function store_new_jobs(lane_names, index, now, is_relayed)
  local ids, jobs = read_jobs(lane_names, index)
  read_events(ARGV[index + 2], jobs)
  local known = known_ids(ids, is_relayed)
  local taken, key_values, key_times = take_keys(read_keys(ARGV[index + 1], ids, known), ids, jobs, now)
  return taken, store_jobs(lane_names, jobs, known, key_values, key_times, now), ids
end
