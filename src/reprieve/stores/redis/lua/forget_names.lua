-- Deletes tenants and queues without jobs, limiters that only a rate has kept, names without lanes, and entries of lanes whose jobs
-- are gone. Lanes and other limiters are deleted with their last job. docs/decisions/0031-forgetting-names.md has the rules.
--
-- needs calls: tag, call, sub, format, call_many, fetch_fields, write_even_when_full
-- needs record: is_sound
-- needs rate: granted
-- needs tenants: tenants, queue_of, load_tenants, flush_queues
-- needs limiters: limiters, load_limiters
-- needs lanes: lanes, load_lanes, flush
-- needs waiting: delayed_key, requeued_key, fresh_key, id_time
-- needs names: sweep_names
-- needs leftovers: drop_leftover, is_leftover
-- needs expiring: add_expiry, write_expiry
-- KEYS     1: the partition
-- ARGV     1: now, how long after the last search for unused tenants and limiters the next one begins, and the moment before which what
--             was served last is idle (msgpack)
-- Returns: {how many names were deleted, 1 if there may be more to delete}

local MAX_ENTRIES = 1000 -- of lanes, in search of leftovers
local MAX_NAMES = 500 -- tenants, and limiters, that one call looks at; a small hash is read as a whole

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

-- Whether it has limits of its own, or the rate of a default that counts what it has granted.
local function is_kept(limits)
  return limits.own ~= 0 or limits.count and granted(limits, now) > 0
end

-- Whether a tenant has no lane, nothing keeps or weighs it, and its virtual time matters to no other tenant.
local function is_unused(tenant)
  if tenant.lane_count > 0 or tenant.running > 0 or tenant.weight ~= 1 or is_kept(tenant) then
    return false
  end
  return not tenant.served_at or tenant.served_at <= idle_since or tenant.finish <= queue_of(tenant.queue).clock
end

-- Returns the next fields of a hash, each once, and where the ones after them begin; '0': there are none.
local function scan(hash, cursor)
  local found, names, known = call('HSCAN', hash, cursor, 'COUNT', MAX_NAMES), {}, {}
  for number = 1, #found[2], 2 do
    local name = found[2][number]
    if not known[name] then
      known[name] = true
      names[#names + 1] = name
    end
  end
  return names, found[1]
end

-- Deletes those of the next tenants that are unused. Returns how many, and where the next ones begin.
local function forget_tenants(cursor)
  local keys, after = scan(tag .. ':tenants', cursor)
  local gone, rechecks = {}, {}
  load_tenants(keys)
  for _, key in ipairs(keys) do
    local tenant = tenants[key]
    if is_unused(tenant) then
      gone[#gone + 1], rechecks[#rechecks + 1] = key, 't' .. key
      local queue = queue_of(tenant.queue)
      queue.tenants, queue.is_changed = queue.tenants - 1, true
    end
  end
  call_many('HDEL', tag .. ':tenants', gone)
  call_many('ZREM', tag .. ':rechecks', rechecks)
  flush_queues()
  return #gone, after
end

-- Deletes those of the next limiters that outlived their jobs for a rate that counts nothing any more.
local function forget_limiters(cursor)
  local names, after = scan(tag .. ':limiters', cursor)
  local gone = {}
  load_limiters(names)
  for _, name in ipairs(names) do
    local limiter = limiters[name]
    if limiter.running == 0 and limiter.blocked_tenants == 0 and not is_kept(limiter) then
      gone[#gone + 1] = name
    end
  end
  call_many('HDEL', tag .. ':limiters', gone)
  return #gone, after
end

-- Goes on with the search, first through tenants, then limiters, then lanes for their names. Returns how many names were deleted, and whether there
-- may be more.
local function forget_names()
  local checked_at, position = unpack(call('HMGET', tag .. ':meta', 'names_checked_at', 'names_cursor'))
  if not position then
    if math.abs(now - tonumber(checked_at or 0)) < interval then
      return 0, false
    end
    position = 't0'
    call('HSET', tag .. ':meta', 'names_checked_at', format('%.0f', now))
  end
  local kind, cursor, count, deleted = sub(position, 1, 1), sub(position, 2), 0, 0
  if kind == 't' then
    deleted, cursor = forget_tenants(cursor)
    kind = cursor == '0' and 'l' or 't'
  end
  if kind == 'l' then
    count, cursor = forget_limiters(cursor)
    deleted = deleted + count
    if cursor == '0' then
      kind, cursor = 'n', ''
    end
  end
  if kind == 'n' then
    cursor = sweep_names(cursor) or '0'
  end
  if cursor == '0' then
    call('HDEL', tag .. ':meta', 'names_cursor')
  else
    call('HSET', tag .. ':meta', 'names_cursor', kind .. cursor)
  end
  return deleted, cursor ~= '0'
end

-- Whether a queue has no tenants and no jobs, and no limits or pauses of its own.
local function is_unused_queue(name)
  local queue, limiter_name = queue_of(name), 'q' .. name
  if queue.tenants > 0 or queue.last_served_at > idle_since then
    return false
  end
  load_limiters({limiter_name})
  local limiter = limiters[limiter_name]
  return limiter.running == 0 and not is_kept(limiter) and call('EXISTS',
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
local deleted, has_more = forget_names()
return {deleted + forget_queues(), (has_more or examined > 0) and 1 or 0}
