-- The claim of one queue: promote due jobs, choose, take the picked jobs, and write back what the choice changed.
-- A claim is a table: `number` of the session's call, `now`, `settings` of the fair choice, `exclude`, the arguments of an
-- exclusion or false; and what it has taken: `ids`, `records`, `leases`.
--
-- needs calls: tag, call, max, min, sub, call_many, fetch_fields
-- needs record: WAITING, EXPIRED, is_sound, sound, finish, ending, entry_of
-- needs limits: is_free, room_of, give_back, back_at
-- needs limit_defaults: inherit_limiter, inherit_pauses
-- needs tenants: tenants, queue_of, load_tenants, unblock
-- needs limiters: limiters, load_limiters, recheck_at
-- needs lanes: lanes, load_lanes, turn_of, relist
-- needs waiting: pop_lane, promote, next_due
-- needs rechecks: take_rechecks
-- needs leftovers: drop_leftover
-- needs ended: new_index_changes, list_ended, write_index
-- needs events: record_events
-- needs series: ending_delta, add_deltas
-- needs sessions: capacity_of, pack_lease
-- needs fairness: new_choice, run_choice
-- needs exclusion: new_exclusion, look_again_at
-- needs candidates: new_reader, read_candidates, weigh_tenants
-- exports: return_blocked, claim_from_queue

local MIN_PROMOTED = 50 -- due jobs that a claim promotes, however few it may take
local leftovers = 500 -- entries of jobs that left their lane otherwise (cancelled, retried by a person) that one claim removes at most

-- Opens lanes behind a limiter that has room again, of one tenant more than there is room for.
local function return_lanes(limiter, now, settings)
  inherit_limiter(limiter, now)
  local room = room_of(limiter, now)
  if room == 0 then
    recheck_at(limiter, back_at(limiter, now) or math.huge)
    return
  end
  local blocked = tag .. ':blocked_tenants:' .. limiter.name
  local count = min(settings.max_returning_tenants, room and room + 1 or math.huge)
  local names, left = {}, settings.max_blocked_lanes
  for _, tenant in ipairs(call('ZRANGE', blocked, 0, count - 1)) do
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
      call('ZREM', blocked, tenant)
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

-- Opens what was blocked and may go on. Returns whether there may be more of it.
function return_blocked(now, settings)
  local keys, names, has_more = take_rechecks(now)
  load_tenants(keys)
  load_limiters(names)
  for _, key in ipairs(keys) do
    unblock(tenants[key])
  end
  for _, name in ipairs(names) do
    return_lanes(limiters[name], now, settings)
  end
  return has_more
end

-- Notes which lanes a full limiter blocks.
local function write_blocked_lanes(choice)
  for _, blocked in ipairs(choice.blocked_lanes) do
    local lane, limiter = blocked.lane, blocked.limiter
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
      if room_of(limiter, choice.now) == 0 then
        recheck_at(limiter, back_at(limiter, choice.now) or math.huge)
      else
        recheck_at(limiter, 0)
      end
    end
  end
end

-- Notes when the rates of blocked tenants have room again; math.huge for other limits, so that a new default finds them.
local function write_blocked_tenants(choice)
  for _, tenant in ipairs(choice.blocked_tenants) do
    tenant.is_changed = true
    if tenant.blocked ~= 0 then
      call('ZADD', tag .. ':rechecks', back_at(tenant, choice.now) or math.huge, 't' .. tenant.key)
    end
  end
end

-- Undoes a pick whose job cannot run, after `count_unlimited`: it is past its deadline, or behind too many leftovers.
local function give_back_pick(choice, lane)
  give_back(lane.tenant)
  unblock(lane.tenant)
  give_back(choice.queue_limits)
  for _, name in ipairs(lane.ref.limiters) do
    if limiters[name] ~= choice.queue_limits then
      give_back(limiters[name])
    end
  end
  choice.is_cut = true
end

-- Takes entries off lanes, as many of each lane as are wanted. Returns their ids, entries and lanes.
local function pop_entries(wanted)
  local ids, entries, from = {}, {}, {}
  for name, count in pairs(wanted) do
    for _, entry in ipairs(pop_lane(lanes[name], count)) do
      local index = #ids + 1
      ids[index], entries[index], from[index] = sub(entry, 1, 16), entry, name
    end
  end
  return ids, entries, from
end

-- Whether the record of an entry is damaged, so that it does not tell whether the entry is a leftover.
local function is_damaged(id, record)
  return record and not is_sound(record) and call('HEXISTS', tag .. ':leftovers', id) == 0
end

-- Takes the picked jobs out of their lanes. Returns by lane those that may run, each as id, record and version; adds
-- those past their deadline to `expired`.
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
    for index, record in ipairs(fetch_fields(tag .. ':jobs', ids)) do
      local id, name = ids[index], from[index]
      local version, state, _, deadline = 0, -1, 0, 0
      if record and #record >= 16 + #name then
        version, state, _, deadline = struct.unpack('>I4BBd', record)
      end
      if (state ~= WAITING or entries[index] ~= entry_of(id, version)) and is_damaged(id, record) then
        version, state, deadline = struct.unpack('>I2', entries[index], 17), WAITING, 0
        record = sound(record, version, name)
        call('HSET', tag .. ':jobs', id, record)
      end
      if state ~= WAITING or entries[index] ~= entry_of(id, version) then
        leftovers = leftovers - 1
        drop_leftover(name, id)
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

-- Lets jobs die that are past their deadline.
local function expire(expired, now)
  local records, events, deltas, index = {}, {}, {}, new_index_changes()
  for number, item in ipairs(expired) do
    local lane, id, record = unpack(item)
    deltas[number] = ending_delta('X', now, lane.name)
    record = sound(record, struct.unpack('>I4', record), lane.name)
    local finished = finish(record, EXPIRED, now)
    records[#records + 1], records[#records + 2] = id, finished
    events[#events + 1], events[#events + 2] = id, ending(record, 'X', now, '')
    lane.dead = lane.dead + 1
    list_ended(index, id, finished, now)
  end
  call_many('HSET', tag .. ':jobs', records)
  write_index(index)
  record_events(events, now)
  add_deltas(deltas)
end

-- Counts the picks where nothing limits them.
local function count_unlimited(choice)
  for _, lane in pairs(choice.taken) do
    for _, name in ipairs(lane.ref.limiters) do
      local limiter = limiters[name]
      if limiter ~= choice.queue_limits and is_free(limiter) then
        limiter.running = limiter.running + lane.picked
        limiter.is_changed = true
      end
    end
  end
end

-- Takes the picked jobs in the order of their picks, and leases them.
local function take_picks(claim, choice)
  local ids, records, leases = claim.ids, claim.records, claim.leases
  local expired, reached, leases_of = {}, {}, {}
  for name in pairs(choice.taken) do
    reached[name], leases_of[name] = 0, {}
  end
  local found = pop_jobs(choice, expired)
  for _, lane in ipairs(choice.picks) do
    local name = lane.name
    reached[name] = reached[name] + 1
    local job = found[name][reached[name]]
    if job then
      local id, record, version = unpack(job)
      local lease = leases_of[name][version]
      if not lease then
        lease = pack_lease(claim.number, claim.now, version + 1, name)
        leases_of[name][version] = lease
      end
      leases[#leases + 1], leases[#leases + 2] = id, lease
      ids[#ids + 1], records[#records + 1] = id, record
    else
      give_back_pick(choice, lane)
    end
  end
  expire(expired, claim.now)
end

-- Writes back what the choice has changed; the rest is written by `flush`.
local function write_back(choice)
  for name, lane in pairs(choice.taken) do
    lane.picked = false
    relist(lane)
    if lane.is_listed and not lane.tenant.only_lane then
      call('ZADD', tag .. ':open_lanes:' .. lane.tenant.key, 'XX', turn_of(lane), name)
    end
  end
  write_blocked_lanes(choice)
  write_blocked_tenants(choice)
  choice.queue.is_changed = choice.queue.is_changed or choice.picks[1] ~= nil
end

-- Chooses the jobs to take, reading more only where the choice depends on it.
local function choose(claim, queue, limit, exclusion)
  local choice = new_choice(queue, limiters['q' .. queue.name], capacity_of(queue.name), claim.now, claim.settings)
  local reader, need = new_reader(queue, exclusion), 'tenants'
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

-- Leases up to so many jobs of a queue. Returns when there may be more, if that is known.
function claim_from_queue(claim, name, limit)
  local queue, now = queue_of(name), claim.now
  if not queue.is_known then
    return
  end
  local count_before, next_at = #claim.ids, nil
  local function note(at)
    if at then
      next_at = min(next_at or math.huge, at)
    end
  end
  load_limiters({'q' .. name})
  local limits = limiters['q' .. name]
  inherit_limiter(limits, now)
  inherit_pauses(queue, limits)
  promote(queue, now, max(MIN_PROMOTED, limit))
  if room_of(limits, now) == 0 then
    note(back_at(limits, now))
  else
    local exclude = claim.exclude
    local exclusion = exclude and new_exclusion(exclude.tasks, exclude.tenants, exclude.lanes, claim.settings)
    local choice = choose(claim, queue, limit, exclusion)
    count_unlimited(choice)
    take_picks(claim, choice)
    write_back(choice)
    note(choice.is_cut and now)
    note(choice.ceiling_until)
    if #choice.picks < limit then
      note(back_at(limits, now))
      note(exclusion and look_again_at(exclusion, now, choice.picks[1]))
    end
  end
  if #claim.ids - count_before < limit then
    note(next_due(queue))
    local soonest = call('ZRANGE', tag .. ':rechecks', 0, 0, 'WITHSCORES')[2]
    note(soonest and tonumber(soonest))
  end
  return next_at
end
