-- Stores new jobs. Nothing is stored if the server is full: the first write is one that it refuses then.
--
-- needs calls: tag, call, call_many, fetch_fields, split, server_time, notify
-- needs forgotten: remembered_ids
-- needs tenants: queue_of
-- needs finished: holds_key
-- needs lanes: lanes, load_lanes, flush
-- needs waiting: new_waiting, add_fresh, write_waiting
-- needs series: count_enqueued
-- KEYS     1: the partition
-- ARGV     1: now, names of lanes, and for jobs from an outbox the server's time before they were taken (msgpack)
--          2: for each job 29 bytes: id, number of its lane from 1 (2), wait (1), due (8), version (2)
--          3: for each job with a unique key 26 bytes: number of the job from 1 (2), key (16), until when it is kept (8)
--          4 …: the records, in the order of the jobs
--          last, from an outbox: ids of jobs whose rows are deleted there, 16 bytes each
-- Returns: {'grown'}: there are keys, and they are kept elsewhere, since there are more partitions; nothing was done
--          else number of a job, id of the job that has its key, … for each key that was taken
--          From an outbox first a word and the server's time: 'delivered', or 'late' if nothing was done

local MAX_HELD_MS = 30000 -- for which a relay may hold jobs that it has taken out of an outbox
local RELAYED_MS = 90 * 86400000 -- for which a relayed job is remembered whose row may still be in its outbox
local REMOVED_MS = 2 * MAX_HELD_MS -- for which one is whose row is deleted: longer than any relay holds it

local now, lane_names, taken_at = unpack(cmsgpack.unpack(ARGV[1]))
local is_relayed = taken_at and true or false
local clock = is_relayed and server_time()

local function read_jobs()
  local ids, jobs = {}, {}
  for first = 1, #ARGV[2], 29 do
    local id, lane, wait, due, version = struct.unpack('>c16I2BdI2', ARGV[2], first)
    ids[#ids + 1] = id
    jobs[#jobs + 1] = {
      id = id, lane = lane_names[lane], wait = wait, due = due, version = version, has_holder = false,
      deadline = struct.unpack('>d', ARGV[3 + #ids], 7), record = ARGV[3 + #ids],
    }
  end
  return ids, jobs
end

-- Returns which jobs are not to be stored, by id: they are stored, or were and are remembered.
local function known_ids(ids)
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
local function read_keys(ids, known)
  local keys = {}
  for first = 1, #ARGV[3], 26 do
    local number, name, until_at = struct.unpack('>I2c16d', ARGV[3], first)
    if not known[ids[number]] then
      keys[#keys + 1] = {name = name, number = number, until_at = until_at}
    end
  end
  return keys
end

-- Returns the ids of the jobs that have these keys, by key.
local function key_holders(keys)
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
local function take_keys(keys, ids, jobs)
  local taken, values, times = {}, {}, {}
  local holders = key_holders(keys)
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

local function store_jobs(jobs, known, key_values, key_times)
  load_lanes(lane_names)
  local waiting, records, counts = new_waiting(now), {}, {}
  for number, job in ipairs(jobs) do
    if not known[job.id] and not job.has_holder then
      known[job.id] = true
      local lane = lanes[job.lane]
      add_fresh(waiting, lane, job)
      counts[job.lane] = (counts[job.lane] or 0) + 1
      records[#records + 1], records[#records + 2] = job.id, ARGV[3 + number]
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
    flush()
    for queue in pairs(waiting.sooner_queues) do
      waiting.ready_queues[queue] = true
    end
    for queue in pairs(waiting.ready_queues) do
      notify(queue)
    end
  end
end

-- Remembers jobs that came out of an outbox, so that a relay which brings them again stores nothing.
local function remember_relayed(ids)
  local times = {}
  for _, id in ipairs(split(ARGV[#ARGV], 16)) do
    times[#times + 1], times[#times + 2] = clock + REMOVED_MS, id
  end
  for _, id in ipairs(ids) do
    times[#times + 1], times[#times + 2] = clock + RELAYED_MS, id
  end
  call_many('ZADD', tag .. ':relayed', times)
  call('ZREMRANGEBYSCORE', tag .. ':relayed', '-inf', clock)
end

if is_relayed and clock - taken_at > MAX_HELD_MS then
  -- Another relay may have brought the jobs since, and they may have run and be forgotten.
  return {'late', tostring(clock)}
end
if ARGV[3] ~= '' and tonumber(call('HGET', tag .. ':meta', 'partitions') or 1) > 1 then
  return {'grown'}
end
local ids, jobs = read_jobs()
local known = known_ids(ids)
local taken, key_values, key_times = take_keys(read_keys(ids, known), ids, jobs)
store_jobs(jobs, known, key_values, key_times)
if is_relayed then
  remember_relayed(ids)
  table.insert(taken, 1, 'delivered')
  table.insert(taken, 2, tostring(clock))
end
return taken
