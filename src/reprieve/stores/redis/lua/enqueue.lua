-- Stores new jobs. Nothing is stored if the server is full: the first write is one that it refuses then.
--
-- needs calls: tag, call, call_many, split, server_time, notify
-- needs lanes: flush
-- needs new_jobs: store_new_jobs
-- KEYS     1: the partition
-- ARGV     1: now, names of lanes, and for jobs from an outbox the server's time before they were taken (msgpack)
--          2: for each job 29 bytes: id, number of its lane from 1 (2), wait (1), due (8), version (2)
--          3: for each job with a unique key 26 bytes: number of the job from 1 (2), key (16), until when it is kept (8)
--          4: for each job that tells all: number of the job from 1 (2), length (4), and the event of its enqueue
--          5 …: the records, in the order of the jobs
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
local taken, ready_queues, ids = store_new_jobs(lane_names, 2, now, is_relayed)
flush()
for queue in pairs(ready_queues) do
  notify(queue)
end
if is_relayed then
  remember_relayed(ids)
  table.insert(taken, 1, 'delivered')
  table.insert(taken, 2, tostring(clock))
end
return taken
