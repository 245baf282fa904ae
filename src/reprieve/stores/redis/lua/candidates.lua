-- What a claim reads before it chooses: the candidates of a queue, with their open lanes and limiters.
--
-- needs calls: tag, call, sub, format
-- needs limits: is_free
-- needs limit_defaults: inherit_tenant, inherit_limiter
-- needs tenants: tenants, weight_of, is_candidate, load_tenants, arrive
-- needs limiters: limiters
-- needs lanes: PRIORITY, lanes, load_lanes
-- needs fairness: add_tenants
-- needs exclusion: jump, skip_excluded
-- exports: new_reader, read_candidates, weigh_tenants

local NONE = {} -- most lanes have no limiter that limits anything

-- Makes the reader of a queue's candidates; `exclusion` says what the claim skips, nil: nothing.
function new_reader(queue, exclusion)
  return {queue = queue, exclusion = exclusion, read = 0, seen = {}}
end

-- Returns names of a tenant's open lanes: the first of them, and if there are more the first of each priority.
local function open_lane_names(tenant, most)
  if tenant.only_lane then
    return {tenant.only_lane}
  end
  local key = tag .. ':open_lanes:' .. tenant.key
  local names = call('ZRANGE', key, 0, most)
  if #names > most then
    names[#names] = nil
    tenant.has_more = true
    -- Of each priority the first is the one that was served longest ago.
    for priority = 1, 18 do
      local from, to = format('%.17g', priority * PRIORITY), format('(%.17g', (priority + 1) * PRIORITY)
      names[#names + 1] = call('ZRANGEBYSCORE', key, from, to, 'LIMIT', 0, 1)[1]
    end
  end
  return names
end

-- Returns the limiters of a lane that limit anything, but for that of its queue, which is asked for all lanes at once.
local function limits_of_lane(lane, now)
  local names, limits = lane.ref.limiters, NONE
  for number = 2, #names do
    local limiter = limiters[names[number]]
    inherit_limiter(limiter, now)
    if not is_free(limiter) then
      limits = limits == NONE and {} or limits
      limits[#limits + 1] = limiter
    end
  end
  return limits
end

-- Reads the open lanes of tenants, but for those that the claim excludes.
local function read_lanes(some, most, exclusion, now)
  local names, lists = {}, {}
  for number, tenant in ipairs(some) do
    inherit_tenant(tenant, now)
    lists[number] = open_lane_names(tenant, most)
  end
  if exclusion then
    skip_excluded(exclusion, some, lists)
  end
  for number = 1, #lists do
    for _, name in ipairs(lists[number]) do
      names[#names + 1] = name
    end
  end
  load_lanes(names)
  for number, tenant in ipairs(some) do
    local open, known, list = {}, tenant.has_more and {}, lists[number]
    for index = 1, #list do
      local name = list[index]
      if not (known and known[name]) then
        if known then
          known[name] = true
        end
        local lane = lanes[name]
        open[#open + 1] = lane
        lane.limits = lane.limits or limits_of_lane(lane, now)
      end
    end
    tenant.lanes = open
  end
end

-- Adds a tenant to a list, if it is a candidate that the reader has not seen yet.
local function add_fresh(reader, list, fresh, tenant)
  if not reader.seen[tenant.key] and is_candidate(tenant) then
    reader.seen[tenant.key] = true
    if not tenant.stored_member and not tenant.has_arrived then
      tenant.has_arrived = true
      arrive(tenant)
    end
    list[#list + 1], fresh[#fresh + 1] = tenant, tenant
  end
end

-- Reads tenants that may be next, and gives them to the choice. What this call has changed is where its numbers say,
-- which need not be where it was read.
function read_candidates(reader, choice)
  local queue, count, exclusion = reader.queue.name, choice.settings.max_tenants_read, reader.exclusion
  if exclusion and exclusion.tenants_left <= 0 then
    local skip = jump(exclusion, call('ZCARD', tag .. ':candidates:' .. queue) - reader.read)
    if not skip then
      return add_tenants(choice, {}, {}, nil)
    end
    reader.read = reader.read + skip
  end
  local members = call('ZRANGE', tag .. ':candidates:' .. queue, reader.read, reader.read + count - 1)
  local keys, in_order, others, fresh = {}, {}, {}, {}
  for number = 1, #members do
    keys[number] = queue .. '\0' .. sub(members[number], 17)
  end
  load_tenants(keys)
  for number = 1, #keys do
    local tenant = tenants[keys[number]]
    add_fresh(reader, tenant.is_changed and others or in_order, fresh, tenant)
  end
  if reader.read == 0 then
    for _, tenant in pairs(tenants) do
      if tenant.queue == queue then
        add_fresh(reader, others, fresh, tenant)
      end
    end
  end
  read_lanes(fresh, choice.settings.max_lanes_read, exclusion, choice.now)
  local read_up_to
  if #members == count then
    local load, finish = struct.unpack('>dd', members[count])
    read_up_to = {load = load, finish = finish, name = sub(members[count], 17)}
  end
  reader.read = reader.read + #members
  add_tenants(choice, in_order, others, read_up_to)
end

-- Sums the weights of the tenants of a queue that wait, and of those that only run; the sums of the queue do not have
-- what this call has changed.
function weigh_tenants(queue)
  local waiting, running = queue.waiting, queue.active
  for _, tenant in pairs(tenants) do
    if tenant.queue == queue.name then
      local waits, weight = is_candidate(tenant), weight_of(tenant)
      waiting = waiting - tenant.stored_waiting + (waits and weight or 0)
      running = running - tenant.stored_active + (not waits and tenant.running > 0 and weight or 0)
    end
  end
  return {waiting = waiting, running = running}
end
