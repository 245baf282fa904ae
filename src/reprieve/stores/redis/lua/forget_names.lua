-- Deletes tenants and queues without jobs, and entries of lanes whose jobs are gone. Lanes and limiters are deleted with their
-- last job. docs/decisions/0031-forgetting-names.md has the rules.
--
-- needs calls: tag, call, sub, format, call_many, fetch_fields, write_even_when_full
-- needs record: is_sound
-- needs limits: is_free
-- needs tenants: tenants, queue_of, load_tenants, flush_queues
-- needs limiters: limiters, load_limiters
-- needs lanes: lanes, load_lanes, flush
-- needs waiting: delayed_key, requeued_key, fresh_key, id_time
-- needs leftovers: drop_leftover, is_leftover
-- needs expiring: add_expiry, write_expiry
-- KEYS     1: the partition
-- ARGV     1: now, how long after the last search for tenants without lanes the next one begins, and the moment before which what
--             was served last is idle (msgpack)
-- Returns: {how many tenants and queues were deleted, 1 if there may be more to delete}

local MAX_ENTRIES = 1000 -- of lanes, in search of leftovers
local MAX_TENANTS = 500 -- that one call looks at; a small hash is read as a whole

local now, interval, idle_since = unpack(cmsgpack.unpack(ARGV[1]))

-- Takes so many of the first entries off the fresh jobs of a lane: leftovers go, and jobs stand among those that became
-- ready later, in the order of before.
local function sift(lane, count)
  local entries, ids, jobs = call('LPOP', fresh_key(lane.name), count) or {}, {}, {}
  for number, entry in ipairs(entries) do
    ids[number] = sub(entry, 1, 16)
  end
  for number, record in ipairs(fetch_fields(tag .. ':jobs', ids)) do
    local id, entry = ids[number], entries[number]
    if is_leftover(id, entry, record) then
      drop_leftover(lane.name, id)
    else
      jobs[#jobs + 1], jobs[#jobs + 2] = id_time(id), entry
      if is_sound(record) then
        local _, _, _, deadline = struct.unpack('>I4BBd', record)
        add_expiry(id, deadline)
      end
    end
  end
  call_many('ZADD', requeued_key(lane.name), jobs)
  lane.requeued = lane.requeued + #jobs / 2
  lane.is_changed = lane.is_changed or jobs[1] ~= nil
  return #entries
end

-- Removes leftovers from lanes of which they are at least half, from so many entries. Returns how many were looked at.
local function remove_leftovers(count)
  local left, counts = count, call('HGETALL', tag .. ':leftover_lanes')
  for number = 1, #counts, 2 do
    local name = counts[number]
    if left > 0 and 2 * tonumber(counts[number + 1]) >= call('LLEN', fresh_key(name)) then
      load_lanes({name})
      left = left - sift(lanes[name], left)
    end
  end
  return count - left
end

-- Whether a tenant has no lane, nothing limits or weighs it, and its virtual time matters to no other tenant.
local function is_unused(tenant)
  if tenant.lane_count > 0 or tenant.running > 0 or tenant.weight ~= 1 or not is_free(tenant) then
    return false
  end
  return not tenant.served_at or tenant.served_at <= idle_since or tenant.finish <= queue_of(tenant.queue).clock
end

-- Deletes unused tenants. Returns how many, and whether there may be more.
local function forget_tenants()
  local checked_at, cursor = unpack(call('HMGET', tag .. ':meta', 'names_checked_at', 'names_cursor'))
  if not cursor then
    if math.abs(now - tonumber(checked_at or 0)) < interval then
      return 0, false
    end
    cursor = '0'
    call('HSET', tag .. ':meta', 'names_checked_at', format('%.0f', now))
  end
  local found, keys, gone = call('HSCAN', tag .. ':tenants', cursor, 'COUNT', MAX_TENANTS), {}, {}
  for number = 1, #found[2], 2 do
    keys[#keys + 1] = found[2][number]
  end
  load_tenants(keys)
  for _, key in ipairs(keys) do
    local tenant = tenants[key]
    if is_unused(tenant) then
      tenant.lane_count = math.huge -- a scan may return it twice
      gone[#gone + 1] = key
      local queue = queue_of(tenant.queue)
      queue.tenants, queue.is_changed = queue.tenants - 1, true
    end
  end
  call_many('HDEL', tag .. ':tenants', gone)
  flush_queues()
  if found[1] == '0' then
    call('HDEL', tag .. ':meta', 'names_cursor')
  else
    call('HSET', tag .. ':meta', 'names_cursor', found[1])
  end
  return #gone, found[1] ~= '0'
end

-- Whether a queue has no tenants and no jobs, and nothing limits or pauses it.
local function is_unused_queue(name)
  local queue, limiter_name = queue_of(name), 'q' .. name
  if queue.tenants > 0 or queue.pauses > 0 or queue.last_served_at > idle_since then
    return false
  end
  load_limiters({limiter_name})
  local limiter = limiters[limiter_name]
  return limiter.running == 0 and is_free(limiter) and call('EXISTS',
    tag .. ':succeeded:' .. name, tag .. ':cancelled:' .. name, tag .. ':dead:' .. name,
    delayed_key(name, 1), delayed_key(name, 2), delayed_key(name, 3)) == 0
end

-- Deletes unused queues. Returns how many.
local function forget_queues()
  local gone = {}
  for _, name in ipairs(call('HKEYS', tag .. ':queues')) do
    if is_unused_queue(name) then
      gone[#gone + 1] = name
    end
  end
  call_many('HDEL', tag .. ':queues', gone)
  return #gone
end

write_even_when_full()
local examined = remove_leftovers(MAX_ENTRIES)
write_expiry()
flush()
local tenant_count, has_more = forget_tenants()
return {tenant_count + forget_queues(), (has_more or examined > 0) and 1 or 0}
