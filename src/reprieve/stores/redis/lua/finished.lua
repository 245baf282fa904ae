-- Succeeded jobs of a queue, which are listed in the order of their end, and jobs that are deleted.
--
-- needs calls: tag, call, max, min, call_many
-- needs events: forget_event_index
-- needs forgotten: remember_ids
-- needs record: WAITING, is_sound, lane_in
-- needs tenants: queue_of
-- exports: has_succeeded, holds_key, keep_succeeded, forget_jobs

local MIN_SUCCEEDED_KEPT = 1000 -- of each queue
local MAX_FORGOTTEN = 2000 -- jobs that one call forgets; the next goes on

-- Whether a stored job has succeeded.
function has_succeeded(id, record)
  if not is_sound(record) or string.byte(record, 5) ~= WAITING then
    return false
  end
  return call('ZSCORE', tag .. ':succeeded:' .. string.match(lane_in(record), '^%Z*'), id) and true or false
end

-- Whether a job holds its unique key beyond the key's time: it waits, runs, or is kept as dead or cancelled.
function holds_key(id)
  local record = call('HGET', tag .. ':jobs', id)
  return record and not has_succeeded(id, record)
end

-- Deletes records, with the index of their events, and remembers the ids.
function forget_jobs(ids)
  call_many('HDEL', tag .. ':jobs', ids)
  forget_event_index(ids)
  remember_ids(ids)
end

-- Lists succeeded jobs, each with its time before it, and forgets the oldest beyond what the last prune was told to keep.
function keep_succeeded(queue, times_and_ids)
  local key = tag .. ':succeeded:' .. queue
  call_many('ZADD', key, times_and_ids)
  local excess = call('ZCARD', key) - max(MIN_SUCCEEDED_KEPT, queue_of(queue).kept)
  if excess > 0 then
    local gone = call('ZRANGE', key, 0, min(excess, MAX_FORGOTTEN) - 1)
    call('ZREMRANGEBYRANK', key, 0, #gone - 1)
    forget_jobs(gone)
  end
end
