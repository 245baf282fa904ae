-- Ends waiting jobs whose time has come: past their deadline, or parked for long enough behind a gate that is held.
--
-- needs calls: tag, call, min, sub, fetch_fields, write_even_when_full
-- needs record: WAITING, EXPIRED, is_sound, lane_in, finish, ending
-- needs limit_defaults: inherit_limiter
-- needs limiters: limiters, load_limiters
-- needs lanes: lane_ref, lane_of, flush
-- needs waiting: fresh_key
-- needs leftovers: drop_leftover, is_leftover
-- needs expiring: expiring_key, expiring_lanes_key, add_expiry, remove_expiry, set_lane_expiry, write_expiry
-- needs series: ending_delta
-- needs settle: settle
-- KEYS     1: the partition
-- ARGV     1: now  2: limit
-- Returns: {whether more is due (0 or 1), id, record, …}

local HELD_AGAIN_MS = 10000 -- after which a job is looked at again that was parked for long enough, but whose gate is open
local MAX_LANES = 50 -- that one call looks at
local RECORD_COST = 10 -- of a job that is read; one that no longer exists costs 1
local MAX_COST = 1000 -- of the jobs that one call looks for

local now, limit = tonumber(ARGV[1]), tonumber(ARGV[2])
local changes, known, spent = {}, {}, 0

local function add_change(id, record)
  if not known[id] then
    known[id] = true
    local version, _, wait = struct.unpack('>I4BB', record)
    local lane = lane_in(record)
    changes[#changes + 1] = {
      id = id, expected = version, at = now, is_success = false, session = '', event = ending(record, 'X', now, ''),
      state = EXPIRED, wait = wait, due = now, version = version + 1, lane = lane, yields = false,
      record = finish(record, EXPIRED, now), audit = '', delta = ending_delta('X', now, lane),
    }
  end
end

-- Whether a limiter of a job's lane, such as the gate of its dependency, is held.
local function is_held(record)
  local names = lane_ref(lane_in(record)).limiters
  load_limiters(names)
  for number = 2, #names do
    local limiter = limiters[names[number]]
    inherit_limiter(limiter, now)
    if limiter.permits == 0 then
      return true
    end
  end
  return false
end

-- Returns the first of those in a sorted set by time whose time has come, so many at most.
local function due(key, count)
  return call('ZRANGEBYSCORE', key, '-inf', now, 'LIMIT', 0, count)
end

-- Returns the records of jobs; false for one that does not exist.
local function fetch_records(ids)
  local records = fetch_fields(tag .. ':jobs', ids)
  for _, record in ipairs(records) do
    spent = spent + (record and RECORD_COST or 1)
  end
  return records
end

-- Takes jobs whose own time has come.
local function take_due_jobs(ids)
  remove_expiry(ids)
  for number, record in ipairs(fetch_records(ids)) do
    if record and is_sound(record) then
      local _, state, _, deadline = struct.unpack('>I4BBd', record)
      if state == WAITING then
        if deadline > 0 and deadline <= now or is_held(record) then
          add_change(ids[number], record)
        else
          add_expiry(ids[number], min(now + HELD_AGAIN_MS, deadline > 0 and deadline or math.huge))
        end
      end
    end
  end
end

-- Takes the first fresh jobs of a lane that are past their deadline, and removes the leftovers before and between them. Few
-- entries are read first: mostly the second job of the lane has time left.
local function take_first_jobs(lane)
  local key, taken, count = fresh_key(lane.name), 0, 2
  while spent < MAX_COST do
    local entries, ids = call('LRANGE', key, taken, taken + count - 1), {}
    for number, entry in ipairs(entries) do
      ids[number] = sub(entry, 1, 16)
    end
    for number, record in ipairs(fetch_records(ids)) do
      local id, entry = ids[number], entries[number]
      if is_leftover(id, entry, record) then
        call('LREM', key, 1, entry)
        drop_leftover(lane.name, id)
      elseif not is_sound(record) then
        return set_lane_expiry(lane, false) -- It is damaged: a claim finds out.
      else
        local _, _, _, deadline = struct.unpack('>I4BBd', record)
        if deadline == 0 or deadline > now then
          return set_lane_expiry(lane, deadline > 0 and deadline)
        elseif #changes == limit then
          return set_lane_expiry(lane, now)
        end
        add_change(id, record)
        taken = taken + 1 -- It stays in the list until it is settled.
      end
    end
    if #entries < count then
      return set_lane_expiry(lane, false)
    end
    count = min(2 * count, limit)
  end
  set_lane_expiry(lane, now)
end

write_even_when_full()
while spent < MAX_COST do
  local ids = due(expiring_key, limit - #changes)
  if not ids[1] then
    break
  end
  take_due_jobs(ids)
end
for _, name in ipairs(due(expiring_lanes_key, MAX_LANES)) do
  if #changes < limit and spent < MAX_COST then
    take_first_jobs(lane_of(name))
  end
end
local results = settle(changes, now)
write_expiry()
flush()
local has_more = due(expiring_key, 1)[1] or due(expiring_lanes_key, 1)[1]
local words, answer, number = {}, {has_more and 1 or 0}, 0
for word in string.gmatch(results, '%a+') do
  words[#words + 1] = word
end
for _, change in ipairs(changes) do
  number = number + 1
  if results == 'applied' or words[number] == 'applied' then
    answer[#answer + 1], answer[#answer + 2] = change.id, change.record
  end
end
return answer
