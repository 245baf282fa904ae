-- Stores new jobs. Nothing is stored if the server is full: the first write is one that it refuses then.
--
-- needs: calls forgotten record rate limits places line
-- KEYS  1: the partition
-- ARGV  1: now, names of lanes, and for jobs out of an outbox what this server's clock said before they were taken
--          (msgpack)
--       2: for each job 29 bytes: id, number of its lane from 1 (2), wait (1), due (8), version (2)
--       3: for each job with a key 26 bytes: number of the job from 1 (2), key (16), until when it is kept (8)
--       4 …: the records, in the order of the jobs
--       last, out of an outbox: ids whose rows are gone from it, 16 bytes each
-- Returns: {'grown'}, and nothing was done, if there are keys and they are kept elsewhere, since there are more partitions
--         number of a job, id of the job that has its key, … for each key that was taken
--         Out of an outbox: before that a word, `landed`, or `late` if nothing was done, and what the clock says
--
--   :o  sorted set: id of a job that came out of an outbox → until when it is remembered, by this server's clock
--   :u  hash: key → id of its job (16 bytes), until when it is kept (8);  :ux sorted set: key → until when

local HELD = 30000 -- for which jobs may be held that were taken out of an outbox, in milliseconds, as all that follow
local UNSURE = 90 * 86400000 -- for which a job is remembered whose row may still be in its outbox
local SURE = 2 * HELD -- for which one is whose row is gone: longer than anybody holds what was taken before

local now, names, heard = unpack(cmsgpack.unpack(ARGV[1]))
local clock
if heard then
  local time = call('TIME')
  clock = time[1] * 1000 + floor(time[2] / 1000)
  if clock - heard > HELD then
    -- Whoever stopped with jobs in hand: they may have come by another way, have run, and be forgotten by now.
    return {'late', tostring(clock)}
  end
end
if ARGV[3] ~= '' and tonumber(call('HGET', P .. ':m', 'partitions') or 1) > 1 then
  return {'grown'}
end
local ids, jobs = {}, {}
for first = 1, #ARGV[2], 29 do
  local id, lane, wait, due, version = struct.unpack('>c16I2BdI2', ARGV[2], first)
  ids[#ids + 1] = id
  jobs[#jobs + 1] = {lane, wait, due, version}
end

-- Which are stored already: this is a repeat, or one of them was given twice.
local stored, known = {}, fetch(P .. ':j', ids)
for number, id in ipairs(ids) do
  if known[number] then
    stored[id] = true
  end
end
if call('EXISTS', P .. ':lo') == 1 then
  for number, leftovers in ipairs(fetch(P .. ':lo', ids)) do
    if leftovers then
      -- Given up and forgotten, while its entry still stands in a lane that is held: it is not made anew.
      stored[ids[number]] = true
    end
  end
end
if heard and ids[1] then
  for number, trace in ipairs(call('ZMSCORE', P .. ':o', unpack(ids))) do
    stored[ids[number]] = stored[ids[number]] or trace and true
  end
end
for number in pairs(forgotten(ids)) do
  stored[ids[number]] = true
end

local answer, taken, key_times = {}, {}, {}
if ARGV[3] ~= '' then
  local keys, numbers, untils = {}, {}, {}
  for first = 1, #ARGV[3], 26 do
    local number, key, til = struct.unpack('>I2c16d', ARGV[3], first)
    if not stored[ids[number]] then
      keys[#keys + 1], numbers[#numbers + 1], untils[#untils + 1] = key, number, til
    end
  end
  local holders, asked = {}, {}
  for number, packed in ipairs(fetch(P .. ':u', keys)) do
    if packed then
      local holder, til = struct.unpack('>c16d', packed)
      holders[keys[number]] = {holder, til}
      if til <= now then
        asked[#asked + 1] = keys[number]
      end
    end
  end
  for _, key in ipairs(asked) do
    -- A key outlives its time for as long as its job is there.
    if holders[key] and call('HEXISTS', P .. ':j', holders[key][1]) == 0 then
      holders[key] = nil
    end
  end
  for place, key in ipairs(keys) do
    local number = numbers[place]
    if holders[key] then
      answer[#answer + 1], answer[#answer + 2] = number, holders[key][1]
      jobs[number].is_known = holders[key][1] ~= ids[number]
    else
      holders[key] = {ids[number]}
      taken[#taken + 1], taken[#taken + 2] = key, struct.pack('>c16d', ids[number], untils[place])
      key_times[#key_times + 1], key_times[#key_times + 2] = untils[place], key
    end
  end
end

meet_lanes(names)
local line, records = new_line(), {}
for number, id in ipairs(ids) do
  local job = jobs[number]
  if not stored[id] and not job.is_known then
    stored[id] = true
    local lane = lanes[names[job[1]]]
    stand(line, lane, id, job[4], job[2], job[3], now, false)
    records[#records + 1], records[#records + 2] = id, ARGV[3 + number]
    local queue = queue_of(lane.place.queue)
    queue.is_changed = queue.is_changed or not queue.is_known
  end
end
if records[1] then
  many('HSET', P .. ':j', records)
  form(line)
  many('HSET', P .. ':u', taken)
  many('ZADD', P .. ':ux', key_times)
  flush()
  for queue in pairs(line.rung) do
    ring(queue)
  end
end
if heard then
  local traces = {}
  for _, id in ipairs(split(ARGV[#ARGV], 16)) do
    traces[#traces + 1], traces[#traces + 2] = clock + SURE, id
  end
  for _, id in ipairs(ids) do
    traces[#traces + 1], traces[#traces + 2] = clock + UNSURE, id
  end
  many('ZADD', P .. ':o', traces)
  call('ZREMRANGEBYSCORE', P .. ':o', '-inf', clock)
  table.insert(answer, 1, 'landed')
  table.insert(answer, 2, tostring(clock))
end
return answer
