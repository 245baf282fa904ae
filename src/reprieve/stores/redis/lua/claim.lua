-- Part: the claim of one queue: promote due jobs, return blocked lanes, choose, take the picks, and write back.

local leftovers = 500 -- entries without a job that one claim removes at most; the next goes on

-- Moves due jobs to their lanes.
local function promote(queue, now, limit)
  local line, due_count = nil, 0
  for wait = 1, 3 do
    if not (wait == 1 and queue.pauses % 2 == 1 or wait == 2 and queue.pauses >= 2) then
      local key = delayed_key(queue.name, wait)
      local due = call('ZRANGEBYSCORE', key, '-inf', now, 'LIMIT', 0, limit)
      if due[1] then
        line = line or new_line()
        local records, names = fetch(P .. ':j', due), {}
        for number = 1, #due do
          names[number] = lane_in(records[number])
        end
        meet_lanes(names)
        for number, id in ipairs(due) do
          local version, _, kind = struct.unpack('>I4BB', records[number])
          local lane = lanes[names[number]]
          local counter = COUNTERS[kind == 0 and 1 or kind]
          lane[counter] = lane[counter] - 1
          stand(line, lane, id, version, kind, 0, now, false)
        end
        many('ZREM', key, due)
      end
    end
  end
  if line then
    form(line)
  end
end

-- Opens lanes behind a limiter that has room again, of one tenant more than there is room for.
local function return_lanes(limiter, now, settings)
  local room = room_of(limiter, now)
  if room == 0 then
    look_again(limiter, back_at(limiter, now))
    return
  end
  local held = P .. ':h:' .. limiter.name
  local count = min(settings.max_returning_tenants, room and room + 1 or math.huge)
  local names, left = {}, settings.max_blocked_lanes
  for _, tenant in ipairs(call('ZRANGE', held, 0, count - 1)) do
    if left <= 0 then
      break
    end
    local key = P .. ':a:' .. limiter.name .. '\0' .. tenant
    local members = call('SPOP', key, left)
    left = left - #members
    for _, name in ipairs(members) do
      names[#names + 1] = name
    end
    if call('EXISTS', key) == 0 then
      call('ZREM', held, tenant)
      limiter.aside = limiter.aside - 1
      limiter.is_changed = true
    end
  end
  meet_lanes(names)
  for _, name in ipairs(names) do
    lanes[name].aside = false
    relist(lanes[name])
  end
  look_again(limiter, limiter.aside > 0 and 0 or nil)
end

-- Opens what is blocked and may go on. Returns whether there may be more of it.
local function return_all(now, settings)
  local keys, names = {}, {}
  for _, member in ipairs(call('ZRANGEBYSCORE', P .. ':w', '-inf', now, 'LIMIT', 0, 16)) do
    if sub(member, 1, 1) == 't' then
      keys[#keys + 1] = sub(member, 2)
    else
      names[#names + 1] = member
    end
  end
  meet_tenants(keys)
  meet_limiters(names)
  for _, key in ipairs(keys) do
    unblock(tenants[key])
  end
  for _, name in ipairs(names) do
    return_lanes(limiters[name], now, settings)
  end
  return #keys + #names == 16
end

-- Marks lanes as blocked that a full limiter keeps from giving anything.
local function write_blocked_lanes(choice)
  for _, blocked in ipairs(choice.blocked_lanes) do
    local lane, limiter = blocked.lane, blocked.limiter
    if not lane.aside and lane.ready > 0 then
      lane.aside = limiter.name
      relist(lane)
      local key = P .. ':a:' .. limiter.name .. '\0' .. lane.tenant.key
      call('SADD', key, lane.name)
      local seq = call('HINCRBY', P .. ':m', 'asides', 1)
      if call('ZADD', P .. ':h:' .. limiter.name, 'NX', seq, lane.tenant.key) == 1 then
        limiter.aside = limiter.aside + 1
      end
      limiter.is_changed = true
      if room_of(limiter, choice.now) == 0 then
        look_again(limiter, back_at(limiter, choice.now))
      else
        look_again(limiter, 0)
      end
    end
  end
end

-- Notes when the rates of blocked tenants have room again.
local function write_blocked_tenants(choice)
  for _, tenant in ipairs(choice.blocked_tenants) do
    tenant.is_changed = true
    local at = tenant.blocked ~= 0 and back_at(tenant, choice.now)
    if at then
      call('ZADD', P .. ':w', at, 't' .. tenant.key)
    end
  end
end

-- Undoes a pick whose job cannot run.
local function undo(choice, lane)
  give_back(lane.tenant)
  unblock(lane.tenant)
  give_back(choice.limits)
  for _, name in ipairs(lane.place.limiters) do
    if limiters[name] ~= choice.limits then
      give_back(limiters[name])
    end
  end
  choice.is_cut = true
end

-- Takes entries off lanes, as many of each lane as are wanted. Returns their ids, entries and lanes.
local function pop_entries(wanted)
  local ids, entries, from = {}, {}, {}
  for name, count in pairs(wanted) do
    for _, entry in ipairs(call('LPOP', P .. ':l:' .. name, count) or {}) do
      local place = #ids + 1
      ids[place], entries[place], from[place] = sub(entry, 1, 16), entry, name
    end
  end
  return ids, entries, from
end

-- Takes the picked jobs out of their lanes. Returns by lane those that may run, each as id, record and version; adds those
-- past their deadline to `expired`.
local function pop_jobs(choice, expired)
  local wanted, found = {}, {}
  for name, lane in pairs(choice.taken) do
    wanted[name], found[name] = lane.picked, {}
  end
  while next(wanted) and leftovers > 0 do
    local ids, entries, from = pop_entries(wanted)
    if not ids[1] then
      break
    end
    for place, record in ipairs(fetch(P .. ':j', ids)) do
      local id, name = ids[place], from[place]
      local version, state, _, deadline = 0, -1, 0, 0
      if record then
        version, state, _, deadline = struct.unpack('>I4BBd', record)
      end
      if state ~= WAITING or entries[place] ~= entry_of(id, version) then
        leftovers = leftovers - 1
        if call('HINCRBY', P .. ':lo', id, -1) <= 0 then
          call('HDEL', P .. ':lo', id)
        end
      else
        wanted[name] = wanted[name] > 1 and wanted[name] - 1 or nil
        if deadline > 0 and deadline <= choice.now then
          expired[#expired + 1] = {choice.taken[name], id, record}
        else
          local jobs = found[name]
          jobs[#jobs + 1] = {id, record, version}
        end
      end
    end
  end
  for name, count in pairs(wanted) do
    -- Too many entries without a job stood before these; they are ready for the next claim.
    choice.taken[name].ready = choice.taken[name].ready + count
  end
  return found
end

local function bury(choice, expired)
  local records, events, by_key = {}, {}, {}
  for _, item in ipairs(expired) do
    local lane, id, record = item[1], item[2], item[3]
    records[#records + 1], records[#records + 2] = id, finish(record, EXPIRED, choice.now)
    events[#events + 1], events[#events + 2] = id, ending(record, 'X', choice.now, '')
    lane.dead = lane.dead + 1
    local key = P .. ':x:' .. lane.place.queue
    by_key[key] = by_key[key] or {}
    table.insert(by_key[key], choice.now)
    table.insert(by_key[key], id)
  end
  many('HSET', P .. ':j', records)
  for key, list in pairs(by_key) do
    many('ZADD', key, list)
  end
  tell(events, choice.now)
end

-- Counts the picks where nothing limits them.
local function count_unlimited(choice)
  for _, lane in pairs(choice.taken) do
    for _, name in ipairs(lane.place.limiters) do
      local limiter = limiters[name]
      if limiter ~= choice.limits and is_free(limiter) then
        limiter.running = limiter.running + lane.picked
        limiter.is_changed = true
      end
    end
  end
end

-- Takes the picked jobs in the order of their picks, and leases them.
local function take_picks(choice, number, leases, out)
  local expired, reached, prefixes = {}, {}, {}
  for name in pairs(choice.taken) do
    reached[name], prefixes[name] = 0, {}
  end
  local found = pop_jobs(choice, expired)
  for _, lane in ipairs(choice.picks) do
    local name = lane.name
    reached[name] = reached[name] + 1
    local job = found[name][reached[name]]
    if job then
      local id, record, version = unpack(job)
      local lease = prefixes[name][version]
      if not lease then
        lease = struct.pack('>ddI4', number, choice.now, version + 1) .. name
        prefixes[name][version] = lease
      end
      leases[#leases + 1], leases[#leases + 2] = id, lease
      out.ids[#out.ids + 1] = id
      out.records[#out.records + 1] = record
    else
      undo(choice, lane)
    end
  end
  bury(choice, expired)
end

-- Writes back what the choice has changed; the rest is written by `flush`.
local function write_back(choice)
  for name, lane in pairs(choice.taken) do
    lane.picked = false
    relist(lane)
    if lane.is_listed and not lane.tenant.alone then
      call('ZADD', P .. ':r:' .. lane.tenant.key, 'XX', turn_of(lane), name)
    end
  end
  write_blocked_lanes(choice)
  write_blocked_tenants(choice)
  choice.queue.is_changed = choice.queue.is_changed or choice.picks[1] ~= nil
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

-- Chooses the jobs to take, reading more only where the choice depends on it.
local function choose(queue, slots, now, settings, limit)
  local choice, reader = new_choice(queue, limiters['q' .. queue.name], slots, now, settings), new_reader(queue)
  local need = 'tenants'
  while need do
    if need == 'tenants' then
      read_candidates(reader, choice)
    else
      choice.weights = weigh_tenants(queue)
    end
    need = run_choice(choice, limit)
  end
  return choice
end

-- Leases up to so many jobs of a queue. Returns when there may be more, if it is known.
local function visit(name, number, now, slots, settings, limit, leases, out)
  local queue = queue_of(name)
  if not queue.is_known then
    return
  end
  local before = #out.ids
  promote(queue, now, max(50, limit))
  meet_limiters({'q' .. name})
  local moment
  local function note(at)
    if at then
      moment = min(moment or math.huge, at)
    end
  end
  if room_of(limiters['q' .. name], now) == 0 then
    note(back_at(limiters['q' .. name], now))
  else
    local choice = choose(queue, slots, now, settings, limit)
    count_unlimited(choice)
    take_picks(choice, number, leases, out)
    write_back(choice)
    note(choice.is_cut and now)
    note(choice.ceiling_until)
    note(#choice.picks < limit and back_at(choice.limits, now))
  end
  if #out.ids - before < limit then
    note(next_due(queue))
    local soonest = call('ZRANGE', P .. ':w', 0, 0, 'WITHSCORES')[2]
    note(soonest and tonumber(soonest))
  end
  return moment
end
