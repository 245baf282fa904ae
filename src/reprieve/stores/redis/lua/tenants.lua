-- Queues and their tenants. Each is read once, changed in memory, and written once by `flush_tenants`, `flush_queues`.
--
-- A tenant with an open lane that no limit of its own blocks is a candidate of its queue. The members of
-- `:candidates:<queue>` begin with the tenant's load and finish time as big-endian numbers (8 bytes each), so their
-- order is the order of the fair choice.
--
-- needs calls: tag, call, floor, max, sub, call_many, fetch_fields, list_in, unread_names
-- needs limits: pack_limits
-- exports: LOAD_UNIT, FULL, SPENT, HELD, tenants, queue_of, load_of, weight_of, is_candidate, load_tenants
-- exports: arrive, unblock, flush_tenants, flush_queues

LOAD_UNIT = 1e6 -- ROUND in core/fairness: loads and virtual times are whole millionths
FULL, SPENT, HELD = 1, 2, 3 -- why a tenant's own limits block it: slots, rate, permits of 0
tenants = {}

local queues = {}

function queue_of(name)
  local queue = queues[name]
  if not queue then
    local packed = call('HGET', tag .. ':queues', name)
    local f = packed and cmsgpack.unpack(packed) or {}
    queue = {
      name = name, clock = f[1] or 0, last_tenant = f[2] or '', in_a_row = f[3] or 0, last_served_at = f[4] or 0,
      other_served_at = f[5] or 0, pauses = f[6] or 0, waiting = f[7] or 0, active = f[8] or 0, kept = f[9] or 0,
      tenants = f[10] or 0, is_known = packed and true,
    }
    queues[name] = queue
  end
  return queue
end

function load_of(tenant)
  return floor(tenant.running * LOAD_UNIT / tenant.weight)
end

-- Returns a weight in whole thousandths, so that sums of weights stay exact.
function weight_of(tenant)
  return floor(tenant.weight * 1000 + 0.5)
end

local function member_of(tenant)
  return struct.pack('>dd', load_of(tenant), tenant.finish) .. tenant.name
end

function is_candidate(tenant)
  return tenant.open > 0 and tenant.blocked == 0
end

-- Reads tenants, by <queue \0 tenant>, that this script has not read yet.
function load_tenants(keys)
  local unread = unread_names(tenants, keys)
  local states = fetch_fields(tag .. ':tenants', unread)
  for number = 1, #unread do
    local key, packed = unread[number], states[number]
    local cut = string.find(key, '\0', 1, true)
    local f = packed and cmsgpack.unpack(packed) or {}
    -- A table that is made with all its fields need not grow, which costs more than the rest.
    local tenant = {
      key = key, queue = sub(key, 1, cut - 1), name = sub(key, cut + 1),
      weight = f[1] or 1, running = f[2] or 0, finish = f[3] or 0, served = f[4] or 0, served_at = f[5] or false,
      open = f[6] or 0, only_lane = f[7] or false, blocked = f[8] or 0, lane_count = f[9] or 0,
      permits = f[10] or false, max_running = f[11] or false,
      count = f[12] or false, window = f[13] or false, bucket = f[14] or false, meter = f[15] or false, own = f[16] or 0,
      stored_member = false, stored_waiting = 0, stored_active = 0, is_stored = packed and true,
      load = 0, lanes = false, has_more = false, has_excluded = false, has_arrived = false, is_changed = false,
    }
    if tenant.open > 0 and tenant.blocked == 0 then
      tenant.stored_member, tenant.stored_waiting = member_of(tenant), weight_of(tenant)
    elseif tenant.running > 0 then
      tenant.stored_active = weight_of(tenant)
    end
    tenants[key] = tenant
  end
end

-- Brings a tenant that begins to wait up to its queue's clock: what it did not use while it was away is gone.
function arrive(tenant)
  tenant.finish = max(tenant.finish, queue_of(tenant.queue).clock)
end

function unblock(tenant)
  if tenant.blocked ~= 0 then
    tenant.blocked = 0
    tenant.is_changed = true
    call('ZREM', tag .. ':rechecks', 't' .. tenant.key)
    arrive(tenant)
  end
end

-- Adds what changed for a tenant to its queue's weights, and to the candidates that leave and join.
local function update_queue(tenant, leaving, joining)
  local queue, waits = queue_of(tenant.queue), is_candidate(tenant)
  if waits and not tenant.stored_member and not tenant.has_arrived then
    arrive(tenant)
  end
  local member = waits and member_of(tenant)
  if member ~= tenant.stored_member then
    if tenant.stored_member then
      local left = list_in(leaving, queue.name)
      left[#left + 1] = tenant.stored_member
    end
    if member then
      local joined = list_in(joining, queue.name)
      joined[#joined + 1] = 0
      joined[#joined + 1] = member
    end
  end
  local weight = weight_of(tenant)
  local waiting, active = waits and weight or 0, not waits and tenant.running > 0 and weight or 0
  if waiting ~= tenant.stored_waiting or active ~= tenant.stored_active then
    queue.waiting = queue.waiting + waiting - tenant.stored_waiting
    queue.active = queue.active + active - tenant.stored_active
    queue.is_changed = true
  end
  tenant.stored_member, tenant.stored_waiting, tenant.stored_active = member, waiting, active
end

function flush_tenants()
  local set, leaving, joining = {}, {}, {}
  for key, tenant in pairs(tenants) do
    if tenant.is_changed then
      update_queue(tenant, leaving, joining)
      if not tenant.is_stored then
        local queue = queue_of(tenant.queue)
        queue.tenants, queue.is_changed = queue.tenants + 1, true
      end
      set[#set + 1] = key
      set[#set + 1] = cmsgpack.pack(pack_limits({
        tenant.weight, tenant.running, tenant.finish, tenant.served, tenant.served_at or false, tenant.open,
        tenant.only_lane or false, tenant.blocked, tenant.lane_count,
      }, 10, tenant))
    end
  end
  for queue, members in pairs(leaving) do
    call_many('ZREM', tag .. ':candidates:' .. queue, members)
  end
  for queue, members in pairs(joining) do
    call_many('ZADD', tag .. ':candidates:' .. queue, members)
  end
  call_many('HSET', tag .. ':tenants', set)
end

function flush_queues()
  local set = {}
  for name, queue in pairs(queues) do
    if queue.is_changed then
      set[#set + 1] = name
      set[#set + 1] = cmsgpack.pack({
        queue.clock, queue.last_tenant, queue.in_a_row, queue.last_served_at, queue.other_served_at, queue.pauses,
        queue.waiting, queue.active, queue.kept, queue.tenants,
      })
    end
  end
  call_many('HSET', tag .. ':queues', set)
end
