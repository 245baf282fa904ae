-- Forgets what has ended long enough ago, or a part of it.
--
-- needs calls: tag, call, max, min, sub, format, call_many, fetch_fields, write_even_when_full, notify
-- needs record: DEAD, EXPIRED, is_sound, lane_in
-- needs tenants: queue_of
-- needs lanes: lanes, load_lanes, flush
-- needs events: forget_events
-- needs audit: forget_audit
-- needs entries: forget_entries
-- needs finished: forget_jobs, holds_key
-- needs causes: prune_causes
-- needs ended: new_index_changes, unlist_ended, write_index
-- KEYS     1: the partition
-- ARGV     1: now, how many succeeded jobs of a queue, groups of failures and events are kept, and the moments before
--             which succeeded jobs, cancelled jobs, events, groups of failures and audit entries go, and the first
--             hours whose counts of deaths and of failures are kept (msgpack)
--          2: archived dead jobs, 20 bytes each: id, version  3: 8 random bytes that name the deletion of entries
-- Returns: how many went: {succeeded, cancelled, dead, events, keys, results, failures, audit, causes, entries}

local MAX_EXPIRED_ENTRIES = 100 -- each is a change that readers are told of
local MAX_ENTRIES = 1000 -- of all kinds and queues together; the next call goes on
local HOUR_MS = 3600000

local now, kept, failures_kept, events_kept, succeeded_before, cancelled_before, events_before, failures_before,
  audit_before, dead_hour, living_hour = unpack(cmsgpack.unpack(ARGV[1]))
local left = MAX_ENTRIES

-- Takes dead or cancelled jobs from their lanes and from the index of ended jobs.
local function uncount(ids, counter)
  local names, index = {}, new_index_changes()
  for number, record in ipairs(fetch_fields(tag .. ':jobs', ids)) do
    if record and is_sound(record) then
      names[#names + 1] = lane_in(record)
      unlist_ended(index, ids[number], record)
    else
      call('ZREM', tag .. ':' .. counter .. '_by:a', ids[number])
    end
  end
  write_index(index)
  load_lanes(names)
  for _, name in ipairs(names) do
    lanes[name][counter] = lanes[name][counter] - 1
    lanes[name].is_changed = true
  end
end

local function prune_succeeded(name)
  local queue, key = queue_of(name), tag .. ':succeeded:' .. name
  if queue.kept ~= kept then
    queue.kept, queue.is_changed = kept, true
  end
  local count = min(left, max(call('ZCARD', key) - kept, call('ZCOUNT', key, '-inf', succeeded_before)))
  local gone = count > 0 and call('ZRANGE', key, 0, count - 1) or {}
  call_many('ZREM', key, gone)
  forget_jobs(gone)
  left = left - #gone
  return #gone
end

local function prune_cancelled(name)
  local key = tag .. ':cancelled:' .. name
  local gone = call('ZRANGEBYSCORE', key, '-inf', cancelled_before, 'LIMIT', 0, left)
  uncount(gone, 'cancelled')
  call_many('ZREM', key, gone)
  forget_jobs(gone)
  left = left - #gone
  return #gone
end

-- Deletes archived dead jobs, each if it is still dead in the version that was archived.
local function prune_archived()
  local count = 0
  for first = 1, #ARGV[2], 20 do
    if left <= 0 then
      break
    end
    local id, version = struct.unpack('>c16I4', ARGV[2], first)
    local record = call('HGET', tag .. ':jobs', id)
    if record and is_sound(record) then
      local stored, state = struct.unpack('>I4B', record)
      if stored == version and (state == DEAD or state == EXPIRED) then
        uncount({id}, 'dead')
        forget_jobs({id})
        count, left = count + 1, left - 1
      end
    end
  end
  return count
end

local function prune_keys()
  local count = 0
  for _, key in ipairs(call('ZRANGEBYSCORE', tag .. ':unique_key_expiry', '-inf', now, 'LIMIT', 0, left)) do
    local holder = call('HGET', tag .. ':unique_keys', key)
    if holder and holds_key(sub(holder, 1, 16)) then
      call('ZADD', tag .. ':unique_key_expiry', now + HOUR_MS, key)
    else
      call('HDEL', tag .. ':unique_keys', key)
      call('ZREM', tag .. ':unique_key_expiry', key)
      count = count + 1
    end
  end
  left = left - count
  return count
end

local function prune_results()
  local gone = call('ZRANGEBYSCORE', tag .. ':result_expiry', '-inf', now, 'LIMIT', 0, left)
  call_many('HDEL', tag .. ':results', gone)
  call_many('ZREM', tag .. ':result_expiry', gone)
  left = left - #gone
  return #gone
end

local function prune_failures()
  local key = tag .. ':failures_seen'
  local count = min(left, max(call('ZCARD', key) - failures_kept, call('ZCOUNT', key, '-inf', '(' .. failures_before)))
  local gone = count > 0 and call('ZRANGE', key, 0, count - 1) or {}
  call_many('HDEL', tag .. ':failures', gone)
  call_many('ZREM', key, gone)
  left = left - #gone
  return #gone
end

write_even_when_full()
local succeeded, cancelled = 0, 0
for _, name in ipairs(call('HKEYS', tag .. ':queues')) do
  succeeded = succeeded + prune_succeeded(name)
  cancelled = cancelled + prune_cancelled(name)
end
local dead = prune_archived()
call('HSET', tag .. ':meta', 'events_kept', format('%.0f', events_kept))
local excess = tonumber(call('HGET', tag .. ':meta', 'event_count') or 0) - events_kept
local events = forget_events(min(left, excess))
events = events + forget_events(left - events, events_before)
left = max(0, left - events)
local keys = prune_keys()
local results = prune_results()
local failures = prune_failures()
local audit = forget_audit(left, max(0, audit_before))
flush()
local causes = prune_causes(dead_hour, living_hour, MAX_ENTRIES / 2)
local entries = forget_entries(MAX_EXPIRED_ENTRIES, now, ARGV[3])
if entries > 0 then
  notify('*')
end
return {succeeded, cancelled, dead, events, keys, results, failures, audit, causes, entries}
