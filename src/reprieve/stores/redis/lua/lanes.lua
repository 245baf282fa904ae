-- Lanes: the jobs of one queue, tenant, task, dependency, group and priority. Each lane is read once, with its tenant
-- and its limiters, changed in memory, and written once by `flush`.
--
-- A lane is open if it has ready jobs and no limiter blocks it. A tenant with one open lane names it in its own state;
-- several are listed in `:open_lanes:<queue \0 tenant>`, by priority and by how long ago they were served.
--
-- needs calls: tag, call, sub, call_many, fetch_fields, unread_names
-- needs tenants: FULL, tenants, load_tenants, unblock, flush_tenants, flush_queues
-- needs limiters: limiters, load_limiters, recheck_at, flush_limiters
-- needs names: add_names
-- exports: PRIORITY, lanes, has_pairs, begin_pairs, lane_ref, load_lane_refs, load_lanes, lane_of, turn_of, relist, release, flush

PRIORITY = 2 ^ 44 -- turns of a priority: more than a tenant is ever served
lanes = {}

local refs = {}
local COUNTERS = {'ready', 'scheduled', 'retrying', 'parked', 'dead', 'cancelled'}
local pairs_flag

-- Whether tenants and dependencies together may have limits. Nothing counts what runs of a pair before the first has.
function has_pairs()
  if pairs_flag == nil then
    pairs_flag = call('HEXISTS', tag .. ':meta', 'has_pairs') == 1
  end
  return pairs_flag
end

local function cuts(name)
  -- queue \0 tenant \0 task \0 dependency \0 group \0 priority
  local one = string.find(name, '\0', 1, true)
  local two = string.find(name, '\0', one + 1, true)
  local three = string.find(name, '\0', two + 1, true)
  return one, two, three, string.find(name, '\0', three + 1, true)
end

-- Returns the name of the limiter of a lane's tenant and dependency together; nil without a dependency.
local function pair_of(name)
  local one, two, three, four = cuts(name)
  return four > three + 1 and 'p' .. sub(name, one + 1, two - 1) .. '\0' .. sub(name, three + 1, four - 1) or nil
end

-- Begins to count what runs of each pair; `leased` are the lanes of all running jobs.
function begin_pairs(leased)
  pairs_flag, refs = true, {}
  call('HSET', tag .. ':meta', 'has_pairs', 1)
  for _, lane in ipairs(leased) do
    local name = pair_of(lane)
    if name then
      load_limiters({name})
      limiters[name].running = limiters[name].running + 1
      limiters[name].is_changed = true
    end
  end
end

-- Returns the priority of a lane by the last letter of its name: twice that of its jobs; one less if they have an SLA, and
-- the letter is one from a to i.
local function lane_priority(letter)
  return letter < 97 and 2 * (letter - 48) or 2 * (letter - 96) - 1
end

-- Returns what a lane's name says: its queue, tenant, limiters and priority.
function lane_ref(name)
  local ref = refs[name]
  if not ref then
    local one, two, three, four = cuts(name)
    local five = #name - 1
    local queue = sub(name, 1, one - 1)
    local names = {'q' .. queue, 'k' .. sub(name, two + 1, three - 1)}
    if four > three + 1 then
      names[#names + 1] = 'd' .. sub(name, three + 1, four - 1)
      if has_pairs() then
        names[#names + 1] = pair_of(name)
      end
    end
    if five > four + 1 then
      names[#names + 1] = 'g' .. sub(name, four + 1, five - 1)
    end
    ref = {queue = queue, tenant = sub(name, 1, two - 1), limiters = names, priority = lane_priority(string.byte(name, -1))}
    refs[name] = ref
  end
  return ref
end

-- Reads the tenants and limiters of lanes.
function load_lane_refs(names)
  local tenant_keys, limiter_names, known = {}, {}, {}
  for number = 1, #names do
    local ref = lane_ref(names[number])
    tenant_keys[number] = ref.tenant
    for index = 1, #ref.limiters do
      local limiter = ref.limiters[index]
      if not known[limiter] then
        known[limiter] = true
        limiter_names[#limiter_names + 1] = limiter
      end
    end
  end
  load_tenants(tenant_keys)
  load_limiters(limiter_names)
end

-- Reads lanes that this script has not read yet, with their tenants and limiters.
function load_lanes(names)
  load_lane_refs(names)
  local unread = unread_names(lanes, names)
  local states = fetch_fields(tag .. ':lanes', unread)
  for number = 1, #unread do
    local name, packed = unread[number], states[number]
    local ref = lane_ref(name)
    local f = packed and cmsgpack.unpack(packed) or {}
    local tenant = tenants[ref.tenant]
    local ready, blocked_by = f[1] or 0, f[8] or false
    lanes[name] = {
      name = name, ref = ref, tenant = tenant, priority = ref.priority,
      ready = ready, scheduled = f[2] or 0, retrying = f[3] or 0, parked = f[4] or 0, dead = f[5] or 0,
      cancelled = f[6] or 0, served = f[7] or tenant.served, blocked_by = blocked_by,
      requeued = f[9] or 0, last_deadline = f[10] or 0, expires_at = f[11] or false, is_by_sla = ref.priority % 2 == 1,
      before = f, is_stored = packed and true, is_listed = ready > 0 and not blocked_by, limits = false, picked = false, is_changed = false,
    }
  end
end

function lane_of(name)
  load_lanes({name})
  return lanes[name]
end

function turn_of(lane)
  return lane.priority * PRIORITY + lane.served
end

-- Lists a lane among its tenant's open lanes, or removes it, after its ready jobs or its limiter have changed.
function relist(lane)
  lane.is_changed = true
  local is_open = lane.ready > 0 and not lane.blocked_by
  if is_open == lane.is_listed then
    return
  end
  lane.is_listed = is_open
  local tenant = lane.tenant
  tenant.is_changed = true
  local key = tag .. ':open_lanes:' .. tenant.key
  if not is_open then
    tenant.open = tenant.open - 1
    if tenant.only_lane then
      tenant.only_lane = false
    else
      call('ZREM', key, lane.name)
    end
  elseif tenant.open == 0 then
    tenant.open, tenant.only_lane = 1, lane.name
  else
    if tenant.only_lane then
      call('ZADD', key, turn_of(lane_of(tenant.only_lane)), tenant.only_lane)
      tenant.only_lane = false
    end
    call('ZADD', key, turn_of(lane), lane.name)
    tenant.open = tenant.open + 1
  end
end

-- Gives back the slots that jobs of a lane held; what was full may go on.
function release(ref, count)
  local tenant = tenants[ref.tenant]
  tenant.running = tenant.running - count
  tenant.is_changed = true
  if tenant.blocked == FULL then
    unblock(tenant)
  end
  for number = 1, #ref.limiters do
    local limiter = limiters[ref.limiters[number]]
    limiter.running = limiter.running - count
    limiter.is_changed = true
    if limiter.blocked_tenants > 0 then
      recheck_at(limiter, 0)
    end
  end
end

-- Removes a lane without jobs from those that its limiter blocks.
local function leave_blocked(lane)
  local limiter, key = limiters[lane.blocked_by], tag .. ':blocked_lanes:' .. lane.blocked_by .. '\0' .. lane.tenant.key
  call('SREM', key, lane.name)
  if call('EXISTS', key) == 0 then
    call('ZREM', tag .. ':blocked_tenants:' .. limiter.name, lane.tenant.key)
    limiter.blocked_tenants = limiter.blocked_tenants - 1
    limiter.is_changed = true
    if limiter.blocked_tenants == 0 then
      recheck_at(limiter, nil)
    end
  end
end

-- Adds what has changed in the counters of a lane to those of its queue, task and dependency. A lane without jobs is deleted,
-- whatever its counters say.
local function count_names(added, lane, is_gone)
  for index, counter in ipairs(COUNTERS) do
    local count = (is_gone and 0 or lane[counter]) - (lane.before[index] or 0)
    if count ~= 0 then
      local one, two, three, four = cuts(lane.name)
      for subject, name in pairs({
        queue = sub(lane.name, 1, one - 1), task = sub(lane.name, two + 1, three - 1),
        dependency = sub(lane.name, three + 1, four - 1),
      }) do
        local key, field = tag .. ':counts:' .. subject, name .. '\0' .. index
        local fields = added[key]
        if not fields then
          fields = {}
          added[key] = fields
        end
        fields[field] = (fields[field] or 0) + count
      end
    end
  end
end

local function write_counts(added)
  for key, fields in pairs(added) do
    for field, count in pairs(fields) do
      if count ~= 0 and call('HINCRBY', key, field, count) == 0 then
        call('HDEL', key, field)
      end
    end
  end
end

-- Returns the names of lanes as they are listed by their tenants.
local function by_tenant(names)
  local listed = {}
  for number, name in ipairs(names) do
    local one, two = cuts(name)
    listed[number] = sub(name, one + 1, two) .. name
  end
  return listed
end

-- Lists lanes that are new by their names and by their tenants, in the order of bytes, and removes those that are gone.
local function list_lanes(new, gone)
  for key, lists in pairs({
    [tag .. ':lane_names'] = {new, gone}, [tag .. ':lane_names_by_tenant'] = {by_tenant(new), by_tenant(gone)},
  }) do
    local members = {}
    for _, name in ipairs(lists[1]) do
      members[#members + 1], members[#members + 2] = 0, name
    end
    call_many('ZADD', key, members)
    call_many('ZREM', key, lists[2])
  end
end

-- Writes the lanes that have changed, and deletes those without jobs. A tenant counts its lanes.
local function flush_lanes()
  local set, gone, new, left, added = {}, {}, {}, {}, {}
  for name, lane in pairs(lanes) do
    if lane.is_changed then
      local tenant = lane.tenant
      local jobs = lane.ready + lane.scheduled + lane.retrying + lane.parked + lane.dead + lane.cancelled
      if jobs == 0 then
        if lane.blocked_by then
          leave_blocked(lane)
        end
        gone[#gone + 1] = name
        if lane.is_stored then
          tenant.lane_count, tenant.is_changed = tenant.lane_count - 1, true
          left[#left + 1] = name
        end
        if lane.expires_at then
          call('ZREM', tag .. ':expiring_lanes', name)
        end
      else
        if not lane.is_stored then
          tenant.lane_count, tenant.is_changed = tenant.lane_count + 1, true
          new[#new + 1] = name
        end
        set[#set + 1] = name
        set[#set + 1] = cmsgpack.pack({
          lane.ready, lane.scheduled, lane.retrying, lane.parked, lane.dead, lane.cancelled, lane.served,
          lane.blocked_by, lane.requeued, lane.last_deadline, lane.expires_at,
        })
      end
      count_names(added, lane, jobs == 0)
    end
  end
  call_many('HSET', tag .. ':lanes', set)
  call_many('HDEL', tag .. ':lanes', gone)
  list_lanes(new, left)
  add_names(new)
  write_counts(added)
end

-- Writes all lanes, tenants, limiters and queues that have changed.
function flush()
  flush_lanes()
  flush_tenants()
  flush_limiters()
  flush_queues()
end
