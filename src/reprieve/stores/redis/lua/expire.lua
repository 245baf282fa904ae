-- Ends waiting jobs whose time has come: past their deadline, or parked for long enough behind a gate that is held.
--
-- needs calls: tag, call, min, fetch_fields, write_even_when_full
-- needs record: WAITING, EXPIRED, is_sound, lane_in, finish, ending, entry_of
-- needs limit_defaults: inherit_limiter
-- needs limiters: limiters, load_limiters
-- needs lanes: lane_ref, lane_of, flush
-- needs waiting: fresh_key
-- needs leftovers: remove_first_leftovers
-- needs expiring: expiring_key, expiring_lanes_key, add_expiry, remove_expiry, set_lane_expiry, write_expiry
-- needs settle: settle
-- KEYS     1: the partition
-- ARGV     1: now  2: limit
-- Returns: {whether more is due (0 or 1), id, record, …}

local HELD_AGAIN_MS = 10000 -- after which a job is looked at again that was parked for long enough, but whose gate is open
local MAX_LANES = 50 -- that one call looks at
local MAX_DUE_READS = 25 -- of jobs whose own time has come; most no longer exist, and cost little
local MAX_RECORDS = 100 -- of such jobs that one call reads
local MAX_LEFTOVERS = 500 -- entries of jobs that left their lane otherwise, which one call removes

local now, limit = tonumber(ARGV[1]), tonumber(ARGV[2])
local changes, known, records_read = {}, {}, 0

local function add_change(id, record)
  if not known[id] then
    known[id] = true
    local version, _, wait = struct.unpack('>I4BB', record)
    changes[#changes + 1] = {
      id = id, expected = version, at = now, is_success = false, session = '', event = ending(record, 'X', now, ''),
      state = EXPIRED, wait = wait, due = now, version = version + 1, lane = lane_in(record), yields = false,
      record = finish(record, EXPIRED, now),
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

-- Takes jobs whose own time has come.
local function take_due_jobs(ids)
  remove_expiry(ids)
  for number, record in ipairs(fetch_fields(tag .. ':jobs', ids)) do
    records_read = records_read + (record and 1 or 0)
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

-- Takes the first fresh jobs of a lane that are past their deadline.
local function take_first_jobs(lane)
  local most, done, expires_at = limit - #changes, 0, false
  local entries = call('LRANGE', fresh_key(lane.name), 0, MAX_LEFTOVERS - 1)
  local ids = {}
  for number, entry in ipairs(entries) do
    ids[number] = string.sub(entry, 1, 16)
  end
  for number, record in ipairs(fetch_fields(tag .. ':jobs', ids)) do
    local version, state, _, deadline = 0, -1, 0, 0
    if record and is_sound(record) then
      version, state, _, deadline = struct.unpack('>I4BBd', record)
    elseif record and call('HEXISTS', tag .. ':leftovers', ids[number]) == 0 then
      break -- It is damaged: a claim finds out.
    end
    if state == WAITING and entries[number] == entry_of(ids[number], version) then
      if deadline == 0 or deadline > now then
        expires_at = deadline > 0 and deadline
        break
      elseif most == 0 then
        expires_at = now
        break
      end
      most = most - 1
      add_change(ids[number], record)
    end
    done = number
  end
  if done == MAX_LEFTOVERS then
    expires_at = now
  end
  set_lane_expiry(lane, expires_at)
end

write_even_when_full()
for _ = 1, MAX_DUE_READS do
  local ids = records_read < MAX_RECORDS and due(expiring_key, limit - #changes) or {}
  if not ids[1] then
    break
  end
  take_due_jobs(ids)
end
local visited = {}
for _, name in ipairs(due(expiring_lanes_key, MAX_LANES)) do
  if #changes < limit then
    local lane = lane_of(name)
    visited[#visited + 1] = lane
    take_first_jobs(lane)
  end
end
local results = settle(changes, now)
for _, lane in ipairs(visited) do
  remove_first_leftovers(lane, MAX_LEFTOVERS)
end
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
