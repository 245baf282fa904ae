-- Whose jobs a claim takes. The rules are those of `core.fairness` and `core.lane`, for a whole batch at a time.
--
-- needs calls: tag, call, floor, max, min, sub, format
-- needs rate: granted
-- needs limits: is_free, room_of, take_slot, back_at
-- needs tenants: LOAD_UNIT, FULL, SPENT, HELD, tenants, load_of, weight_of, is_candidate, load_tenants, arrive
-- needs limiters: limiters
-- needs lanes: PRIORITY, lanes, load_lanes
-- exports: MOST_ASIDE, AT_ONCE, new_plan, read_candidates, pick

local MOST_IN_A_ROW, MOST_SLOTS, OLDEST_EVERY = 3, 0.9, 16
local MINUTE = 60000
MOST_ASIDE = 64 -- lanes that one claim puts aside; the next goes on
local LANES = 64 -- open lanes of a tenant that a claim reads at once
local NONE = {} -- most lanes go through no limiter that limits anything
AT_ONCE = 24 -- tenants that a claim reads at once

local function is_before(one, other)
  if one.load ~= other.load then
    return one.load < other.load
  elseif one.finish ~= other.finish then
    return one.finish < other.finish
  end
  return one.name < other.name
end

local function push(heap, tenant)
  local place = #heap + 1
  while place > 1 do
    local parent = floor(place / 2)
    if not is_before(tenant, heap[parent]) then
      break
    end
    heap[place] = heap[parent]
    place = parent
  end
  heap[place] = tenant
end

local function pop(heap)
  local first, count = heap[1], #heap
  local last = heap[count]
  heap[count] = nil
  count = count - 1
  if count > 0 then
    local place = 1
    while true do
      local child = 2 * place
      if child > count then
        break
      end
      if child < count and is_before(heap[child + 1], heap[child]) then
        child = child + 1
      end
      if not is_before(heap[child], last) then
        break
      end
      heap[place] = heap[child]
      place = child
    end
    heap[place] = last
  end
  return first
end

-- Tenants that were read stand in line as the ring has them; those that were served, or met before, in a heap beside it.
function new_plan(queue, slots, now)
  return {
    queue = queue, limiter = limiters['q' .. queue.name], slots = slots, now = now, ceiling = max(1, floor(slots * MOST_SLOTS)),
    line = {}, first = 1, heap = {}, seen = {}, read = 0, picks = {}, taken = {}, asides = {},
  }
end

-- Takes the tenant that is next by its numbers, or answers nil.
local function step_up(plan)
  local head = plan.line[plan.first]
  local top = plan.heap[1]
  if head and not (top and is_before(top, head)) then
    plan.first = plan.first + 1
    return head
  end
  return top and pop(plan.heap)
end

-- Returns names of a tenant's open lanes: the first of them, and if there are more the first of each priority.
local function open_lane_names(tenant)
  if tenant.only_lane then
    return {tenant.only_lane}
  end
  local key = tag .. ':open_lanes:' .. tenant.key
  local names = call('ZRANGE', key, 0, LANES)
  if #names > LANES then
    names[#names] = nil
    tenant.has_more = true
    -- Of each priority the first is the one that was served longest ago.
    for priority = 1, 9 do
      local from, to = format('%.17g', priority * PRIORITY), format('(%.17g', (priority + 1) * PRIORITY)
      names[#names + 1] = call('ZRANGEBYSCORE', key, from, to, 'LIMIT', 0, 1)[1]
    end
  end
  return names
end

-- Returns the limiters of a lane that limit anything, but for that of its queue, which is asked for all at once.
local function limits_of_lane(lane)
  local names, limits = lane.ref.limiters, NONE
  for index = 2, #names do
    local limiter = limiters[names[index]]
    if not is_free(limiter) then
      limits = limits == NONE and {} or limits
      limits[#limits + 1] = limiter
    end
  end
  return limits
end

-- Reads lanes of tenants that were not read yet.
local function read_lanes(candidates)
  local names, lists = {}, {}
  for number, tenant in ipairs(candidates) do
    lists[number] = open_lane_names(tenant)
    for _, name in ipairs(lists[number]) do
      names[#names + 1] = name
    end
  end
  load_lanes(names)
  for number, tenant in ipairs(candidates) do
    local open, known, list = {}, tenant.has_more and {}, lists[number]
    for place = 1, #list do
      local name = list[place]
      if not (known and known[name]) then
        if known then
          known[name] = true
        end
        local lane = lanes[name]
        open[#open + 1] = lane
        lane.limits = lane.limits or limits_of_lane(lane)
      end
    end
    tenant.lanes = open
  end
end

-- Reads tenants that may be next. Those that this call has met already are where their numbers say, not the ring.
function read_candidates(plan, count)
  local members = call('ZRANGE', tag .. ':candidates:' .. plan.queue.name, plan.read, plan.read + count - 1)
  local keys, fresh = {}, {}
  for _, member in ipairs(members) do
    local key = plan.queue.name .. '\0' .. sub(member, 17)
    keys[#keys + 1] = key
  end
  load_tenants(keys)
  plan.read = plan.read + #members
  plan.last = nil
  if #members == count then
    local load, finish = struct.unpack('>dd', members[count])
    plan.last = {load = load, finish = finish, name = sub(members[count], 17)}
  end
  local function join(tenant, is_in_order)
    if not plan.seen[tenant.key] and is_candidate(tenant) then
      plan.seen[tenant.key] = true
      if not tenant.stored_member and not tenant.has_arrived then
        tenant.has_arrived = true
        arrive(tenant)
      end
      tenant.load = load_of(tenant)
      fresh[#fresh + 1] = tenant
      if is_in_order then
        plan.line[#plan.line + 1] = tenant
      else
        push(plan.heap, tenant)
      end
    end
  end
  for number = 1, #keys do
    -- What this call has changed may stand elsewhere by now.
    join(tenants[keys[number]], not tenants[keys[number]].is_changed)
  end
  if not plan.has_joined then
    plan.has_joined = true
    for _, tenant in pairs(tenants) do
      if tenant.queue == plan.queue.name then
        join(tenant, false)
      end
    end
  end
  plan.count = (plan.count or 0) + #fresh
end

-- Reads the lanes of a tenant whose turn it is, and of some whose turn may be next.
local function open_lanes(plan, tenant)
  if tenant.lanes then
    return
  end
  local some = {tenant}
  for place = plan.first, min(#plan.line, plan.first + AT_ONCE) do
    if not plan.line[place].lanes then
      some[#some + 1] = plan.line[place]
    end
  end
  for place = 1, min(#plan.heap, AT_ONCE) do
    if not plan.heap[place].lanes then
      some[#some + 1] = plan.heap[place]
    end
  end
  read_lanes(some)
end

local function has_company(plan, tenant)
  if plan.company == nil then
    -- Whoever waits or runs beside this one, by weight; what this call has changed is not among the sums yet.
    plan.company = 0
    local waiting, active = plan.queue.waiting, plan.queue.active
    for _, other in pairs(tenants) do
      if other.queue == plan.queue.name then
        local waits = is_candidate(other)
        local weight = weight_of(other)
        waiting = waiting - other.stored_waiting + (waits and weight or 0)
        active = active - other.stored_active + (not waits and other.running > 0 and weight or 0)
      end
    end
    plan.waiting_weight, plan.active_weight = waiting, active
  end
  if plan.count > 1 or plan.last or plan.active_weight > 0 then
    return true
  end
  local queue = plan.queue
  local seen_at = queue.last == tenant.name and queue.other_at or max(queue.last_at, queue.other_at)
  if plan.now - seen_at < MINUTE then
    plan.ceiling_until = seen_at + MINUTE
    return true
  end
  return false
end

local function share_of(plan, tenant)
  has_company(plan, tenant)
  return plan.slots * weight_of(tenant) / max(1, plan.waiting_weight + plan.active_weight)
end

-- Whether a tenant is within its own limits and the ceiling; if not, it leaves this claim.
local function may_run(plan, tenant)
  if not is_free(tenant) and room_of(tenant, plan.now) == 0 then
    local is_spent = tenant.count and granted(tenant, plan.now) >= tenant.count
    tenant.blocked = tenant.permits == 0 and HELD or is_spent and SPENT or FULL
    tenant.is_changed = true
    local at = back_at(tenant, plan.now)
    if at then
      call('ZADD', tag .. ':rechecks', at, 't' .. tenant.key)
    end
    return false
  end
  return tenant.running < plan.ceiling or not has_company(plan, tenant)
end

-- Returns the tenant that is next, taken off the heap; nil when there is none, or others have to be read first.
local function choose(plan)
  local passed, chosen, fallback = {}, nil, nil
  while true do
    local tenant = step_up(plan)
    if not tenant then
      break
    end
    if plan.last and is_before(plan.last, tenant) then
      passed[#passed + 1] = tenant
      break
    end
    if may_run(plan, tenant) then
      local is_third = tenant.name == plan.queue.last and plan.queue.streak >= MOST_IN_A_ROW
      if is_third and not fallback then
        fallback = tenant
      elseif not fallback or tenant.running < share_of(plan, tenant) then
        chosen = tenant
        break
      else
        passed[#passed + 1] = tenant
      end
    end
  end
  if not chosen and plan.last then
    plan.wants_more = true
  elseif not chosen then
    chosen, fallback = fallback, nil
  end
  if fallback then
    passed[#passed + 1] = fallback
  end
  for number = 1, #passed do
    push(plan.heap, passed[number])
  end
  return chosen
end

local function is_sooner(one, other, by_age)
  if by_age then
    return one.served < other.served or (one.served == other.served and one.priority > other.priority)
  end
  return one.priority < other.priority or (one.priority == other.priority and one.served < other.served)
end

-- Returns the lane of a tenant that is next and may give a job; those that may not are put aside.
local function choose_lane(plan, tenant)
  open_lanes(plan, tenant)
  local by_age = (tenant.served + 1) % OLDEST_EVERY == 0
  local open = tenant.lanes
  while open[1] do
    local best = 1
    for number = 2, #open do
      if is_sooner(open[number], open[best], by_age) then
        best = number
      end
    end
    local lane, full = open[best], nil
    for number = 1, #lane.limits do
      local limiter = lane.limits[number]
      if room_of(limiter, plan.now) == 0 then
        full = limiter
        break
      end
    end
    if not full then
      return lane, best
    end
    plan.asides[#plan.asides + 1] = {lane, full}
    table.remove(open, best)
  end
  if tenant.has_more then
    plan.is_cut = true
  end
end

local function take_one(plan, tenant, lane, place)
  local queue, now = plan.queue, plan.now
  tenant.served = tenant.served + 1
  tenant.served_at = now
  take_slot(tenant, now)
  queue.clock = max(queue.clock, tenant.finish)
  if tenant.name == queue.last and queue.streak > 0 then
    queue.streak = queue.streak + 1
  else
    queue.other_at = max(queue.other_at, queue.last_at)
    queue.last, queue.streak = tenant.name, 1
  end
  queue.last_at = max(queue.last_at, now)
  tenant.finish = tenant.finish + floor(LOAD_UNIT / tenant.weight + 0.5)
  lane.served = tenant.served
  lane.ready = lane.ready - 1
  lane.picked = (lane.picked or 0) + 1
  for number = 1, #lane.limits do
    take_slot(lane.limits[number], now)
  end
  take_slot(plan.limiter, now)
  plan.picks[#plan.picks + 1] = lane
  plan.taken[lane.name] = lane
  if lane.ready == 0 then
    table.remove(tenant.lanes, place)
  end
  if tenant.lanes[1] or tenant.has_more then
    tenant.load = load_of(tenant)
    push(plan.heap, tenant)
  end
end

-- Picks jobs until the limit, or until there is nothing that may run.
function pick(plan, limit)
  local room = room_of(plan.limiter, plan.now)
  limit = room and min(limit, room) or limit
  while true do
    plan.wants_more = false
    while #plan.picks < limit do
      local tenant = choose(plan)
      if not tenant then
        break
      end
      local lane, place = choose_lane(plan, tenant)
      if lane then
        take_one(plan, tenant, lane, place)
      end
      if #plan.asides >= MOST_ASIDE then
        plan.is_cut = true
        return
      end
    end
    if not plan.wants_more then
      return
    end
    read_candidates(plan, AT_ONCE)
  end
end
