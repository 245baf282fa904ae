-- Part: queues, tenants, limiters and lanes. Each is read once, changed in memory, and written once by `flush`.
--
--   :q  hash  queue → clock, last tenant, how many in a row, when it and another were served, pauses, weights, kept successes
--   :tn hash  queue \0 tenant → weight, running, finish, served, when, open lanes, the only one, why blocked, limits
--   :t:<queue> sorted set, the ring: tenants with an open lane that nothing blocks, in the order of their turn, which
--       is the order of the members: load and finish (8 bytes each), then the name
--   :s  hash  lane → ready, scheduled, retrying, parked, dead, cancelled, served, the limiter that it is set aside for
--   :r:<queue \0 tenant> sorted set: a tenant's open lanes, if there are several, by priority and turn
--   :g  hash  limiter → running, tenants set aside, limits. A limiter is q<queue>, k<task>, d<dependency> or g<group>
--   :h:<limiter> sorted set: tenants with lanes set aside, in the order of their coming
--   :a:<limiter \0 queue \0 tenant> set: those lanes
--   :w  sorted set: limiters and blocked tenants (t<queue \0 tenant>) → when to look at them again

local LOAD_UNIT = 1e6 -- loads and virtual times are whole millionths
local FULL, SPENT, HELD = 1, 2, 3
local PRIORITY = 2 ^ 44

local queues, tenants, limiters, places, lanes = {}, {}, {}, {}, {}

local function queue_of(name)
  local queue = queues[name]
  if not queue then
    local packed = call('HGET', P .. ':q', name)
    local f = packed and cmsgpack.unpack(packed) or {}
    queue = {
      name = name, clock = f[1] or 0, last_tenant = f[2] or '', in_a_row = f[3] or 0, last_served_at = f[4] or 0,
      other_served_at = f[5] or 0, pauses = f[6] or 0, waiting = f[7] or 0, active = f[8] or 0, kept = f[9] or 0,
      is_known = packed and true,
    }
    queues[name] = queue
  end
  return queue
end

local function load_of(tenant)
  return floor(tenant.running * LOAD_UNIT / tenant.weight)
end

-- Weights are summed in whole thousandths, so that what came and went leaves nothing behind.
local function weight_of(tenant)
  return floor(tenant.weight * 1000 + 0.5)
end

local function member_of(tenant)
  return struct.pack('>dd', load_of(tenant), tenant.finish) .. tenant.name
end

local function is_in_ring(tenant)
  return tenant.open > 0 and tenant.blocked == 0
end

local function meet_tenants(keys)
  local unknown = {}
  for number = 1, #keys do
    local key = keys[number]
    if not tenants[key] then
      tenants[key] = true
      unknown[#unknown + 1] = key
    end
  end
  local states = fetch(P .. ':tn', unknown)
  for number = 1, #unknown do
    local key, packed = unknown[number], states[number]
    local cut = string.find(key, '\0', 1, true)
    local f = packed and cmsgpack.unpack(packed) or {}
    -- A table that is made with all its fields need not grow, which costs more than the rest.
    local tenant = {
      key = key, queue = sub(key, 1, cut - 1), name = sub(key, cut + 1),
      weight = f[1] or 1, running = f[2] or 0, finish = f[3] or 0, served = f[4] or 0, served_at = f[5] or false,
      open = f[6] or 0, alone = f[7] or false, blocked = f[8] or 0,
      permits = f[9] or false, max_running = f[10] or false,
      count = f[11] or false, window = f[12] or false, bucket = f[13] or false, meter = f[14] or false,
      was = false, waited = 0, ran = 0, load = 0, lanes = false, has_more = false, has_arrived = false,
      is_changed = false,
    }
    if tenant.open > 0 and tenant.blocked == 0 then
      tenant.was, tenant.waited = member_of(tenant), weight_of(tenant)
    elseif tenant.running > 0 then
      tenant.ran = weight_of(tenant)
    end
    tenants[key] = tenant
  end
end

local function meet_limiters(names)
  local unknown = {}
  for _, name in ipairs(names) do
    if not limiters[name] then
      limiters[name] = true
      unknown[#unknown + 1] = name
    end
  end
  for number, packed in ipairs(fetch(P .. ':g', unknown)) do
    local f = packed and cmsgpack.unpack(packed) or {}
    limiters[unknown[number]] = {
      name = unknown[number], running = f[1] or 0, aside = f[2] or 0,
      permits = f[3] or false, max_running = f[4] or false,
      count = f[5] or false, window = f[6] or false, bucket = f[7] or false, meter = f[8] or false,
      is_changed = false,
    }
  end
end

-- Where a lane is: what its name says.
local function place_of(name)
  local place = places[name]
  if not place then
    -- queue \0 tenant \0 task \0 dependency \0 group \0 priority
    local one = string.find(name, '\0', 1, true)
    local two = string.find(name, '\0', one + 1, true)
    local three = string.find(name, '\0', two + 1, true)
    local four = string.find(name, '\0', three + 1, true)
    local five = #name - 1
    local queue = sub(name, 1, one - 1)
    local through = {'q' .. queue, 'k' .. sub(name, two + 1, three - 1)}
    if four > three + 1 then
      through[#through + 1] = 'd' .. sub(name, three + 1, four - 1)
    end
    if five > four + 1 then
      through[#through + 1] = 'g' .. sub(name, four + 1, five - 1)
    end
    place = {queue = queue, tenant = sub(name, 1, two - 1), limiters = through, priority = string.byte(name, -1) - 48}
    places[name] = place
  end
  return place
end

local function meet_places(names)
  local their_tenants, their_limiters, known = {}, {}, {}
  for number = 1, #names do
    local place = place_of(names[number])
    their_tenants[number] = place.tenant
    local through = place.limiters
    for place_of_limiter = 1, #through do
      local limiter = through[place_of_limiter]
      if not known[limiter] then
        known[limiter] = true
        their_limiters[#their_limiters + 1] = limiter
      end
    end
  end
  meet_tenants(their_tenants)
  meet_limiters(their_limiters)
end

local function is_open(lane)
  return lane.ready > 0 and not lane.aside
end

-- Reads lanes, with their tenants and limiters.
local function meet_lanes(names)
  meet_places(names)
  local unknown = {}
  for number = 1, #names do
    local name = names[number]
    if not lanes[name] then
      lanes[name] = true
      unknown[#unknown + 1] = name
    end
  end
  local states = fetch(P .. ':s', unknown)
  for number = 1, #unknown do
    local name, packed = unknown[number], states[number]
    local place = place_of(name)
    local f = packed and cmsgpack.unpack(packed) or {}
    local tenant = tenants[place.tenant]
    local ready, aside = f[1] or 0, f[8] or false
    lanes[name] = {
      name = name, place = place, tenant = tenant, priority = place.priority,
      ready = ready, scheduled = f[2] or 0, retrying = f[3] or 0, parked = f[4] or 0, dead = f[5] or 0,
      cancelled = f[6] or 0, served = f[7] or tenant.served, aside = aside,
      is_listed = ready > 0 and not aside, limits = false, picked = false, is_changed = false,
    }
  end
end

local function lane_of(name)
  meet_lanes({name})
  return lanes[name]
end

local function turn_of(lane)
  return lane.priority * PRIORITY + lane.served
end

-- Lists a lane among its tenant's open ones, or takes it off, after its jobs or its limiter have changed.
local function relist(lane)
  lane.is_changed = true
  local should = is_open(lane)
  if should == lane.is_listed then
    return
  end
  lane.is_listed = should
  local tenant = lane.tenant
  tenant.is_changed = true
  local key = P .. ':r:' .. tenant.key
  if not should then
    tenant.open = tenant.open - 1
    if tenant.alone then
      tenant.alone = false
    else
      call('ZREM', key, lane.name)
    end
  elseif tenant.open == 0 then
    tenant.open, tenant.alone = 1, lane.name
  else
    if tenant.alone then
      call('ZADD', key, turn_of(lane_of(tenant.alone)), tenant.alone)
      tenant.alone = false
    end
    call('ZADD', key, turn_of(lane), lane.name)
    tenant.open = tenant.open + 1
  end
end

-- A tenant begins to wait: what it did not use while it was away is gone.
local function arrive(tenant)
  tenant.finish = max(tenant.finish, queue_of(tenant.queue).clock)
end

local function unblock(tenant)
  if tenant.blocked ~= 0 then
    tenant.blocked = 0
    tenant.is_changed = true
    call('ZREM', P .. ':w', 't' .. tenant.key)
    arrive(tenant)
  end
end

local function look_again(limiter, at)
  if at then
    call('ZADD', P .. ':w', at, limiter.name)
  else
    call('ZREM', P .. ':w', limiter.name)
  end
end

-- Gives back slots that jobs of a lane held; whatever was full may go on.
local function release(place, count)
  local tenant = tenants[place.tenant]
  tenant.running = tenant.running - count
  tenant.is_changed = true
  if tenant.blocked == FULL then
    unblock(tenant)
  end
  local through = place.limiters
  for number = 1, #through do
    local limiter = limiters[through[number]]
    limiter.running = limiter.running - count
    limiter.is_changed = true
    if limiter.aside > 0 then
      look_again(limiter, 0)
    end
  end
end

local function flush_lanes()
  local set, gone = {}, {}
  for name, lane in pairs(lanes) do
    if lane.is_changed then
      local is_empty = lane.ready + lane.scheduled + lane.retrying + lane.parked + lane.dead + lane.cancelled == 0
      if is_empty and not lane.aside then
        gone[#gone + 1] = name
      else
        set[#set + 1] = name
        set[#set + 1] = cmsgpack.pack({
          lane.ready, lane.scheduled, lane.retrying, lane.parked, lane.dead, lane.cancelled, lane.served,
          lane.aside or nil,
        })
      end
    end
  end
  many('HSET', P .. ':s', set)
  many('HDEL', P .. ':s', gone)
end

local function flush_tenants()
  local set, leave, join = {}, {}, {}
  for key, tenant in pairs(tenants) do
    if tenant.is_changed then
      local queue = queue_of(tenant.queue)
      local waits = is_in_ring(tenant)
      if waits and not tenant.was and not tenant.has_arrived then
        arrive(tenant)
      end
      local member = waits and member_of(tenant)
      if member ~= tenant.was then
        local left, joined = leave[queue.name], join[queue.name]
        if not left then
          left, joined = {}, {}
          leave[queue.name], join[queue.name] = left, joined
        end
        if tenant.was then
          left[#left + 1] = tenant.was
        end
        if member then
          joined[#joined + 1] = 0
          joined[#joined + 1] = member
        end
      end
      local weight = weight_of(tenant)
      local waiting, active = waits and weight or 0, not waits and tenant.running > 0 and weight or 0
      if waiting ~= tenant.waited or active ~= tenant.ran then
        queue.waiting = queue.waiting + waiting - tenant.waited
        queue.active = queue.active + active - tenant.ran
        queue.is_changed = true
      end
      tenant.was, tenant.waited, tenant.ran = member, waiting, active
      set[#set + 1] = key
      set[#set + 1] = cmsgpack.pack(write_limits({
        tenant.weight, tenant.running, tenant.finish, tenant.served, tenant.served_at or false, tenant.open,
        tenant.alone or false, tenant.blocked,
      }, 9, tenant))
    end
  end
  for queue, members in pairs(leave) do
    many('ZREM', P .. ':t:' .. queue, members)
  end
  for queue, members in pairs(join) do
    many('ZADD', P .. ':t:' .. queue, members)
  end
  many('HSET', P .. ':tn', set)
end

local function flush_limiters()
  local set, gone = {}, {}
  for name, limiter in pairs(limiters) do
    if limiter.is_changed then
      if limiter.running == 0 and limiter.aside == 0 and is_free(limiter) then
        gone[#gone + 1] = name
      else
        set[#set + 1] = name
        set[#set + 1] = cmsgpack.pack(write_limits({limiter.running, limiter.aside}, 3, limiter))
      end
    end
  end
  many('HSET', P .. ':g', set)
  many('HDEL', P .. ':g', gone)
end

local function flush()
  flush_lanes()
  flush_tenants()
  flush_limiters()
  local set = {}
  for name, queue in pairs(queues) do
    if queue.is_changed then
      set[#set + 1] = name
      set[#set + 1] = cmsgpack.pack({
        queue.clock, queue.last_tenant, queue.in_a_row, queue.last_served_at, queue.other_served_at, queue.pauses,
        queue.waiting, queue.active, queue.kept,
      })
    end
  end
  many('HSET', P .. ':q', set)
end
