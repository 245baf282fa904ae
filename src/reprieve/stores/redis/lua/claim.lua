-- The claim of one queue: promote what is due, let return what may, choose, and lease.
--
-- needs calls: tag, call, max, min, sub, call_many, fetch_fields
-- needs record: WAITING, EXPIRED, lane_in, finish, ending, entry_of
-- needs limits: is_free, room_of, give_back, back_at
-- needs tenants: tenants, queue_of, load_tenants, unblock
-- needs limiters: limiters, load_limiters, recheck_at
-- needs lanes: lanes, load_lanes, turn_of, relist
-- needs waiting: DELAYED_COUNTERS, delayed_key, new_waiting, add_waiting, write_waiting
-- needs events: record_events
-- needs sessions: pack_lease
-- needs plan: MOST_ASIDE, AT_ONCE, new_plan, read_candidates, pick
-- exports: return_blocked, claim_from_queue

local MOST_LEFTOVERS = 500 -- leftovers that one claim clears away at the most; the next goes on
local leftovers = MOST_LEFTOVERS

-- Moves due jobs to their lanes.
local function promote(queue, now, limit)
  local line, due_count = nil, 0
  for wait = 1, 3 do
    if not (wait == 1 and queue.pauses % 2 == 1 or wait == 2 and queue.pauses >= 2) then
      local key = delayed_key(queue.name, wait)
      local due = call('ZRANGEBYSCORE', key, '-inf', now, 'LIMIT', 0, limit)
      if due[1] then
        line = line or new_waiting(now)
        local records, names = fetch_fields(tag .. ':jobs', due), {}
        for number = 1, #due do
          names[number] = lane_in(records[number])
        end
        load_lanes(names)
        for number, id in ipairs(due) do
          local version, _, kind = struct.unpack('>I4BB', records[number])
          local lane = lanes[names[number]]
          local counter = DELAYED_COUNTERS[kind]
          lane[counter] = lane[counter] - 1
          add_waiting(line, lane, {id = id, version = version, wait = kind, due = 0}, false)
        end
        call_many('ZREM', key, due)
      end
    end
  end
  if line then
    write_waiting(line)
  end
end

-- Lets lanes return from behind a limiter, of a few tenants more than there is room for.
local function return_lanes(limiter, now)
  local room = room_of(limiter, now)
  if room == 0 then
    recheck_at(limiter, back_at(limiter, now))
    return
  end
  local held = tag .. ':blocked_tenants:' .. limiter.name
  local count = min(MOST_ASIDE, room and room + 1 or MOST_ASIDE)
  local names, left = {}, MOST_ASIDE
  for _, tenant in ipairs(call('ZRANGE', held, 0, count - 1)) do
    if left <= 0 then
      break
    end
    local key = tag .. ':blocked_lanes:' .. limiter.name .. '\0' .. tenant
    local members = call('SPOP', key, left)
    left = left - #members
    for _, name in ipairs(members) do
      names[#names + 1] = name
    end
    if call('EXISTS', key) == 0 then
      call('ZREM', held, tenant)
      limiter.blocked_tenants = limiter.blocked_tenants - 1
      limiter.is_changed = true
    end
  end
  load_lanes(names)
  for _, name in ipairs(names) do
    lanes[name].blocked_by = false
    relist(lanes[name])
  end
  recheck_at(limiter, limiter.blocked_tenants > 0 and 0 or nil)
end

function return_blocked(now)
  local keys, names = {}, {}
  for _, member in ipairs(call('ZRANGEBYSCORE', tag .. ':rechecks', '-inf', now, 'LIMIT', 0, 16)) do
    if sub(member, 1, 1) == 't' then
      keys[#keys + 1] = sub(member, 2)
    else
      names[#names + 1] = member
    end
  end
  load_tenants(keys)
  load_limiters(names)
  for _, key in ipairs(keys) do
    unblock(tenants[key])
  end
  for _, name in ipairs(names) do
    return_lanes(limiters[name], now)
  end
  return #keys + #names == 16
end

-- Puts lanes aside that a full limiter keeps from giving anything.
local function put_aside(plan)
  for _, pair in ipairs(plan.asides) do
    local lane, limiter = pair[1], pair[2]
    if not lane.blocked_by and lane.ready > 0 then
      lane.blocked_by = limiter.name
      relist(lane)
      local key = tag .. ':blocked_lanes:' .. limiter.name .. '\0' .. lane.tenant.key
      call('SADD', key, lane.name)
      local seq = call('HINCRBY', tag .. ':meta', 'blocked_count', 1)
      if call('ZADD', tag .. ':blocked_tenants:' .. limiter.name, 'NX', seq, lane.tenant.key) == 1 then
        limiter.blocked_tenants = limiter.blocked_tenants + 1
      end
      limiter.is_changed = true
      if room_of(limiter, plan.now) == 0 then
        recheck_at(limiter, back_at(limiter, plan.now))
      else
        recheck_at(limiter, 0)
      end
    end
  end
end

local function undo(plan, lane)
  give_back(lane.tenant)
  unblock(lane.tenant)
  give_back(plan.limiter)
  for _, name in ipairs(lane.ref.limiters) do
    if limiters[name] ~= plan.limiter then
      give_back(limiters[name])
    end
  end
  plan.is_cut = true
end

-- Takes entries off lanes, so many of each lane as are still wanted; answers their ids, entries and lanes.
local function pop_entries(wanted)
  local ids, entries, from = {}, {}, {}
  for name, count in pairs(wanted) do
    for _, entry in ipairs(call('LPOP', tag .. ':ready:' .. name, count) or {}) do
      local place = #ids + 1
      ids[place], entries[place], from[place] = sub(entry, 1, 16), entry, name
    end
  end
  return ids, entries, from
end

-- Takes the picked jobs out of their lanes. Answers by lane what may run, each as id, record and version; those past
-- their deadline are noted.
local function pop_jobs(plan, expired)
  local wanted, found = {}, {}
  for name, lane in pairs(plan.taken) do
    wanted[name], found[name] = lane.picked, {}
  end
  while next(wanted) and leftovers > 0 do
    local ids, entries, from = pop_entries(wanted)
    if not ids[1] then
      break
    end
    for place, record in ipairs(fetch_fields(tag .. ':jobs', ids)) do
      local id, name = ids[place], from[place]
      local version, state, _, deadline = 0, -1, 0, 0
      if record then
        version, state, _, deadline = struct.unpack('>I4BBd', record)
      end
      if state ~= WAITING or entries[place] ~= entry_of(id, version) then
        leftovers = leftovers - 1
        if call('HINCRBY', tag .. ':leftovers', id, -1) <= 0 then
          call('HDEL', tag .. ':leftovers', id)
        end
      else
        wanted[name] = wanted[name] > 1 and wanted[name] - 1 or nil
        if deadline > 0 and deadline <= plan.now then
          expired[#expired + 1] = {plan.taken[name], id, record}
        else
          local jobs = found[name]
          jobs[#jobs + 1] = {id, record, version}
        end
      end
    end
  end
  for name, count in pairs(wanted) do
    -- Whatever did not come, because too many leftovers stood before it, is there again.
    plan.taken[name].ready = plan.taken[name].ready + count
  end
  return found
end

local function bury(plan, expired)
  local records, events, by_key = {}, {}, {}
  for _, item in ipairs(expired) do
    local lane, id, record = item[1], item[2], item[3]
    records[#records + 1], records[#records + 2] = id, finish(record, EXPIRED, plan.now)
    events[#events + 1], events[#events + 2] = id, ending(record, 'X', plan.now, '')
    lane.dead = lane.dead + 1
    local key = tag .. ':dead:' .. lane.ref.queue
    by_key[key] = by_key[key] or {}
    table.insert(by_key[key], plan.now)
    table.insert(by_key[key], id)
  end
  call_many('HSET', tag .. ':jobs', records)
  for key, list in pairs(by_key) do
    call_many('ZADD', key, list)
  end
  record_events(events, plan.now)
end

-- Carries out a plan: answers the jobs in the order of their picks, and leases them.
local function carry_out(plan, session, number, leases, out)
  local expired, reached = {}, {}
  for name, lane in pairs(plan.taken) do
    reached[name] = 0
    for _, limiter in ipairs(lane.ref.limiters) do
      local limits = limiters[limiter]
      if limits ~= plan.limiter and is_free(limits) then
        limits.running = limits.running + lane.picked
        limits.is_changed = true
      end
    end
  end
  local found = pop_jobs(plan, expired)
  local prefixes = {}
  for _, lane in ipairs(plan.picks) do
    local name = lane.name
    reached[name] = reached[name] + 1
    local job = found[name][reached[name]]
    if job then
      local version = job[3]
      local of_lane = prefixes[name]
      if not of_lane then
        of_lane = {}
        prefixes[name] = of_lane
      end
      local lease = of_lane[version]
      if not lease then
        lease = pack_lease(number, plan.now, version + 1, name)
        of_lane[version] = lease
      end
      leases[#leases + 1], leases[#leases + 2] = job[1], lease
      out.ids[#out.ids + 1] = job[1]
      out.records[#out.records + 1] = job[2]
    else
      undo(plan, lane)
    end
  end
  bury(plan, expired)
  for name, lane in pairs(plan.taken) do
    lane.picked = false
    relist(lane)
    if lane.is_listed and not lane.tenant.only_lane then
      call('ZADD', tag .. ':open_lanes:' .. lane.tenant.key, 'XX', turn_of(lane), name)
    end
  end
  put_aside(plan)
  plan.queue.is_changed = plan.queue.is_changed or plan.picks[1] ~= nil
end

local function next_due(queue)
  local soonest
  for wait = 1, 3 do
    if not (wait == 1 and queue.pauses % 2 == 1 or wait == 2 and queue.pauses >= 2) then
      local head = call('ZRANGE', delayed_key(queue.name, wait), 0, 0, 'WITHSCORES')
      if head[2] then
        soonest = min(soonest or math.huge, tonumber(head[2]))
      end
    end
  end
  return soonest
end

-- Takes up to so many jobs of a queue. Answers when there may be more, if it is known.
function claim_from_queue(name, session, number, now, slots, limit, leases, out)
  local queue = queue_of(name)
  if not queue.is_known then
    return
  end
  local before = #out.ids
  promote(queue, now, max(50, limit))
  load_limiters({'q' .. name})
  local plan = new_plan(queue, slots, now)
  local moment
  local function note(at)
    if at then
      moment = min(moment or math.huge, at)
    end
  end
  if room_of(plan.limiter, now) == 0 then
    note(back_at(plan.limiter, now))
  else
    read_candidates(plan, AT_ONCE)
    pick(plan, limit)
    carry_out(plan, session, number, leases, out)
    if plan.is_cut then
      note(now)
    end
    note(plan.ceiling_until)
    if #plan.picks < limit then
      note(back_at(plan.limiter, now))
    end
  end
  if #out.ids - before < limit then
    note(next_due(queue))
    local soonest = call('ZRANGE', tag .. ':rechecks', 0, 0, 'WITHSCORES')[2]
    note(soonest and tonumber(soonest))
  end
  return moment
end
