-- The fair choice: the rules of `core/fairness/choice.py` over tables. It reads and writes nothing in Redis, and a test
-- compares the two on thousands of situations.
--
-- A choice picks lanes and counts in the tables that it is given:
--   settings  the fields of FairnessSettings, an argument of each claim
--   queue     clock, last_tenant, in_a_row, last_served_at, other_served_at
--   tenant    name, weight, finish, served, lanes, has_more, has_excluded, blocked; and its limits, see limits.lua
--   lane      name, priority, served, ready, picked; `limits`: those of its limiters that limit anything
--
-- needs calls: floor, max, min
-- needs tenant_heap: is_before, push, pop
-- needs limits: is_free, room_of, take_slot, back_at
-- needs tenants: LOAD_UNIT, FULL, SPENT, HELD, load_of, weight_of
-- exports: new_choice, add_tenants, run_choice

-- Makes the choice of one claim from one queue. `capacity` is that of the live sessions that serve it: {slots, prefetch}.
function new_choice(queue, queue_limits, capacity, now, settings)
  local slots, prefetch = capacity[1], capacity[2]
  return {
    queue = queue, queue_limits = queue_limits, slots = slots, now = now, settings = settings,
    ceiling = max(1, floor(slots * settings.max_share_of_slots)) + prefetch,
    run_length = min(settings.max_in_a_row, 1 + floor(prefetch / max(1, slots))), -- see `_run_length` in the core
    current = nil, -- the tenant whose run of picks goes on; it is not in the heap
    read_up_to = {load = -1, finish = -1, name = ''}, -- the last position that was read; nil: no tenant is beyond it
    weights = false, -- {waiting, running} in thousandths, once it was asked for
    known = {}, waiting = 0, -- tenants by name, and how many of them have an open lane
    sorted = {}, first = 1, heap = {}, -- tenants in their order as they were read, and beside them those that have moved
    picks = {}, taken = {}, -- a lane for each job in the order of the leases, and these lanes by name
    blocked_lanes = {}, blocked_tenants = {}, -- {lane, limiter} each, and tenants
    is_cut = false, -- whether it stopped early, so that the next claim should come at once
    ceiling_until = false, -- when a tenant that is alone may take the slots that are kept for others
    need = nil,
  }
end

local function add_tenant(choice, tenant)
  if choice.known[tenant.name] then
    return false
  end
  choice.known[tenant.name] = tenant
  if not tenant.lanes[1] then
    -- Another session may run its jobs. If none did, it would keep slots free that no session can use.
    choice.waiting = choice.waiting + (tenant.has_excluded and tenant.running > 0 and 1 or 0)
    return false
  end
  choice.waiting = choice.waiting + 1
  tenant.load = load_of(tenant)
  return true
end

-- Goes on with more tenants: some in their order, after all that were given so, and others. Beyond `read_up_to` there
-- may be more; nil says that there are not.
function add_tenants(choice, in_order, others, read_up_to)
  for number = 1, #in_order do
    if add_tenant(choice, in_order[number]) then
      choice.sorted[#choice.sorted + 1] = in_order[number]
    end
  end
  for number = 1, #others do
    if add_tenant(choice, others[number]) then
      push(choice.heap, others[number])
    end
  end
  choice.read_up_to = read_up_to
end

-- Takes the tenant with the first position, or returns nil.
local function take_first(choice)
  local head, top = choice.sorted[choice.first], choice.heap[1]
  if head and not (top and is_before(top, head)) then
    choice.first = choice.first + 1
    return head
  end
  return top and pop(choice.heap)
end

-- Whether no other tenant waits, runs, or was active a moment ago. Sets `need` if that cannot be told yet.
local function is_alone(choice, tenant)
  if choice.waiting > 1 then
    return false
  elseif choice.read_up_to then
    choice.need = 'tenants'
    return false
  elseif not choice.weights then
    choice.need = 'weights'
    return false
  elseif choice.weights.running > 0 then
    return false
  end
  local queue = choice.queue
  local seen_at = queue.other_served_at
  if queue.last_tenant ~= tenant.name then
    seen_at = max(seen_at, queue.last_served_at)
  end
  local active_until = seen_at + choice.settings.activity_window_seconds * 1000
  if choice.now < active_until then
    choice.ceiling_until = active_until
    return false
  end
  return true
end

-- Whether a tenant is within its own limits and the ceiling; if not, this claim is done with it. Also false, with `need`
-- set, when that cannot be told yet.
local function may_take_a_slot(choice, tenant)
  if choice.read_up_to and is_before(choice.read_up_to, tenant) then
    -- Tenants that were not read may come before it.
    choice.need = 'tenants'
    return false
  end
  if not is_free(tenant) and room_of(tenant, choice.now) == 0 then
    local is_spent = back_at(tenant, choice.now)
    tenant.blocked = tenant.permits == 0 and HELD or is_spent and SPENT or FULL
    choice.blocked_tenants[#choice.blocked_tenants + 1] = tenant
    return false
  end
  return tenant.running < choice.ceiling or is_alone(choice, tenant)
end

local function had_enough_in_a_row(choice, tenant)
  return tenant.name == choice.queue.last_tenant and choice.queue.in_a_row >= choice.settings.max_in_a_row
end

-- Whether a tenant holds fewer slots than are its own by weight.
local function is_below_share(choice, tenant)
  if not choice.weights then
    choice.need = 'weights'
    return false
  end
  local own = weight_of(tenant)
  return tenant.running < choice.slots * own / max(own, choice.weights.waiting + choice.weights.running)
end

-- Takes the next tenant; nil when there is none, or when something has to be read first.
local function next_tenant(choice)
  local current = choice.current
  if current then
    choice.current = nil
    if current.running < choice.ceiling and (is_free(current) or room_of(current, choice.now) ~= 0) then
      return current
    end
    current.load = load_of(current)
    push(choice.heap, current)
  end
  local skipped, chosen, repeated = {}, nil, nil
  while not chosen and not choice.need do
    local tenant = take_first(choice)
    if not tenant then
      break
    end
    local may_take = may_take_a_slot(choice, tenant)
    if may_take and not repeated and had_enough_in_a_row(choice, tenant) then
      repeated = tenant
    elseif may_take and (not repeated or is_below_share(choice, tenant)) then
      chosen = tenant
    elseif may_take or choice.need then
      skipped[#skipped + 1] = tenant
    end
  end
  if not chosen and not choice.need and choice.read_up_to then
    choice.need = 'tenants'
  end
  if repeated and not chosen and not choice.need then
    chosen = repeated
  elseif repeated then
    skipped[#skipped + 1] = repeated
  end
  for number = 1, #skipped do
    push(choice.heap, skipped[number])
  end
  return chosen
end

local function is_sooner(one, other, is_for_oldest)
  if is_for_oldest then
    return one.served < other.served or (one.served == other.served and one.priority > other.priority)
  end
  return one.priority < other.priority or (one.priority == other.priority and one.served < other.served)
end

-- Returns a limiter of a lane that has no room, or nil.
local function full_limiter(lane, now)
  for number = 1, #lane.limits do
    if room_of(lane.limits[number], now) == 0 then
      return lane.limits[number]
    end
  end
end

-- Returns the lane of a tenant that is next and may give a job, and its index; notes those that are blocked.
local function next_lane(choice, tenant)
  local is_for_oldest = (tenant.served + 1) % choice.settings.oldest_every_picks == 0
  local lanes = tenant.lanes
  while lanes[1] do
    local best = 1
    for number = 2, #lanes do
      if is_sooner(lanes[number], lanes[best], is_for_oldest) then
        best = number
      end
    end
    local full = full_limiter(lanes[best], choice.now)
    if not full then
      return lanes[best], best
    end
    choice.blocked_lanes[#choice.blocked_lanes + 1] = {lane = lanes[best], limiter = full}
    table.remove(lanes, best)
  end
  if tenant.has_more then
    choice.is_cut = true
  end
end

local function remember(queue, tenant, now)
  queue.clock = max(queue.clock, tenant.finish)
  if tenant.name == queue.last_tenant then
    queue.in_a_row = queue.in_a_row + 1
  else
    queue.other_served_at = max(queue.other_served_at, queue.last_served_at)
    queue.last_tenant, queue.in_a_row = tenant.name, 1
  end
  queue.last_served_at = max(queue.last_served_at, now)
end

local function take(choice, tenant, lane, index)
  local now = choice.now
  tenant.served = tenant.served + 1
  tenant.served_at = now
  take_slot(tenant, now)
  remember(choice.queue, tenant, now)
  tenant.finish = tenant.finish + floor(LOAD_UNIT / tenant.weight + 0.5)
  lane.served = tenant.served
  lane.ready = lane.ready - 1
  lane.picked = (lane.picked or 0) + 1
  for number = 1, #lane.limits do
    take_slot(lane.limits[number], now)
  end
  take_slot(choice.queue_limits, now)
  choice.picks[#choice.picks + 1] = lane
  choice.taken[lane.name] = lane
  if lane.ready == 0 then
    table.remove(tenant.lanes, index)
  end
  if tenant.lanes[1] and choice.queue.in_a_row < choice.run_length then
    choice.current = tenant
  elseif tenant.lanes[1] or tenant.has_more then
    tenant.load = load_of(tenant)
    push(choice.heap, tenant)
  end
end

-- Picks jobs up to the limit. Returns what has to be read before it can go on, 'tenants' or 'weights'; nil: it is done.
function run_choice(choice, limit)
  local room = room_of(choice.queue_limits, choice.now)
  limit = room and min(limit, #choice.picks + room) or limit
  choice.need = nil
  while #choice.picks < limit do
    local tenant = next_tenant(choice)
    if not tenant then
      return choice.need
    end
    local lane, index = next_lane(choice, tenant)
    if lane then
      take(choice, tenant, lane, index)
    end
    if #choice.blocked_lanes >= choice.settings.max_blocked_lanes then
      choice.is_cut = true
      return
    end
  end
end
