-- Events of jobs. A call that has events writes one entry of the stream `:events` with all of them, or several if there
-- are many. The entry's id is the position of its last event. Positions grow with the server's time, by 64 a
-- millisecond or more, so that the events of several partitions can be put in order.
--
-- needs calls: tag, call, floor, max, min, concat, sub, format, server_time
-- needs calls: MAX_ARGUMENTS, call_many, fetch_fields, split, list_in
-- exports: last_position, positions_of, record_events, forget_events, forget_event_index, has_event

local MAX_EVENTS = 100000 -- kept at most, however recent, unless the last prune was told another number
local MAX_REPEAT_EVENTS = 16 -- latest events of a job that a repeat is compared with: it comes soon, or not at all
local MAX_INDEXED_EVENTS = 200 -- latest events of a job that its index has; a list has the positions before them
local POSITION_BYTES = 6
local POSITIONS_PER_MS = 64

-- Returns the position of the last event of a stream entry.
function last_position(entry_id)
  return tonumber(string.match(entry_id, '^(%d+)'))
end

-- Returns the key of the earlier positions of a job with many events. A job in `:long_histories` has it, and a full index.
local function earlier_key(id)
  return tag .. ':earlier_events:' .. id
end

-- Moves the earliest positions of an index to the list of the job if there are too many; returns the others.
local function shorten_index(id, index)
  local excess = #index - POSITION_BYTES * MAX_INDEXED_EVENTS
  if excess <= 0 then
    return index
  end
  call('SADD', tag .. ':long_histories', id)
  call_many('RPUSH', earlier_key(id), split(sub(index, 1, excess), POSITION_BYTES))
  return sub(index, excess + 1)
end

-- Removes the positions up to one from the list of a job; returns whether none is left in it.
local function forget_earlier(id, last)
  local key = earlier_key(id)
  while true do
    local first = call('LINDEX', key, 0)
    if not first then
      call('SREM', tag .. ':long_histories', id)
      return true
    elseif struct.unpack('>I6', first) > last then
      return false
    end
    call('LPOP', key)
  end
end

local function index_events(jobs, first)
  local positions, order = {}, {}
  for number, id in ipairs(jobs) do
    if id ~= '' then
      if not positions[id] then
        order[#order + 1] = id
      end
      local list = list_in(positions, id)
      list[#list + 1] = struct.pack('>I6', first + number - 1)
    end
  end
  local set = {}
  for number, before in ipairs(fetch_fields(tag .. ':event_index', order)) do
    set[#set + 1] = order[number]
    set[#set + 1] = shorten_index(order[number], (before or '') .. concat(positions[order[number]]))
  end
  call_many('HSET', tag .. ':event_index', set)
end

-- Removes the events of an entry, and all before it, from the index of their jobs.
local function unindex_events(last, jobs)
  local set, gone = {}, {}
  for number, index in ipairs(fetch_fields(tag .. ':event_index', jobs)) do
    local is_full = index and #index == POSITION_BYTES * MAX_INDEXED_EVENTS
    if not is_full or forget_earlier(jobs[number], last) then
      local kept = {}
      for _, position in ipairs(split(index or '', POSITION_BYTES)) do
        if struct.unpack('>I6', position) > last then
          kept[#kept + 1] = position
        end
      end
      if kept[1] then
        set[#set + 1], set[#set + 2] = jobs[number], concat(kept)
      else
        gone[#gone + 1] = jobs[number]
      end
    end
  end
  call_many('HSET', tag .. ':event_index', set)
  call_many('HDEL', tag .. ':event_index', gone)
end

-- Deletes an entry of the stream; returns how many events it had.
local function forget_entry(entry)
  local last, fields, seen, jobs = last_position(entry[1]), entry[2], {}, {}
  for number = 3, #fields, 2 do
    local id = fields[number]
    if id ~= '' and not seen[id] then
      seen[id] = true
      jobs[#jobs + 1] = id
    end
  end
  unindex_events(last, jobs)
  call('XDEL', tag .. ':events', format('%.0f-0', last))
  call('HSET', tag .. ':meta', 'events_pruned', format('%.0f', last))
  local count = #fields / 2 - 1
  call('HINCRBY', tag .. ':meta', 'event_count', -count)
  return count
end

-- Deletes the oldest entries until so many events are gone, or the next is after a moment; returns how many went.
function forget_events(count, before)
  local gone = 0
  while gone < count do
    local entry = call('XRANGE', tag .. ':events', '-', '+', 'COUNT', 1)[1]
    if not entry or before and tonumber(entry[2][2]) > before then
      break
    end
    gone = gone + forget_entry(entry)
  end
  if gone > 0 and call('XLEN', tag .. ':events') == 0 then
    call('DEL', tag .. ':events')
  end
  return gone
end

-- Records events: job and event in turn, the latest of them of this time. A notice, which is of no job, has '' in the place
-- of the job.
function record_events(events, at)
  local count = #events / 2
  if count == 0 then
    return
  end
  local earliest = server_time() * POSITIONS_PER_MS
  local meta = call('HMGET', tag .. ':meta', 'last_event', 'events_kept')
  local first = max(tonumber(meta[1] or 0), earliest) + 1
  call('HSET', tag .. ':meta', 'last_event', format('%.0f', first + count - 1))
  for start = 1, #events, MAX_ARGUMENTS do
    local stop = min(start + MAX_ARGUMENTS - 1, #events)
    call('XADD', tag .. ':events', format('%.0f-0', first + stop / 2 - 1), 't', format('%.0f', at),
      unpack(events, start, stop))
  end
  local jobs = {}
  for number = 1, #events, 2 do
    jobs[#jobs + 1] = events[number]
  end
  index_events(jobs, first)
  local excess = call('HINCRBY', tag .. ':meta', 'event_count', count) - tonumber(meta[2] or MAX_EVENTS)
  -- Twice as many as came at most: if there are far too many, the next calls go on.
  forget_events(min(excess, 2 * count))
end

-- Returns the positions of a job's events between two positions, in their order or the latest first, so many at most.
function positions_of(id, after, before, is_newest_first, count)
  local index = call('HGET', tag .. ':event_index', id) or ''
  local is_full = #index == POSITION_BYTES * MAX_INDEXED_EVENTS
  local earlier = is_full and call('LLEN', earlier_key(id)) or 0
  local total = earlier + #index / POSITION_BYTES
  local function at(number)
    local packed = number <= earlier and call('LINDEX', earlier_key(id), number - 1)
    return struct.unpack('>I6', packed or sub(index, POSITION_BYTES * (number - earlier - 1) + 1))
  end
  -- How many of them are before a position.
  local function count_before(position)
    local low, high = 0, total
    while low < high do
      local middle = floor((low + high + 1) / 2)
      if at(middle) < position then
        low = middle
      else
        high = middle - 1
      end
    end
    return low
  end
  local first, last = count_before(after + 1) + 1, count_before(before)
  if is_newest_first then
    first = max(first, last - count + 1)
  else
    last = min(last, first + count - 1)
  end
  local positions = {}
  local step = is_newest_first and -1 or 1
  for number = is_newest_first and last or first, is_newest_first and first or last, step do
    positions[#positions + 1] = at(number)
  end
  return positions
end

-- Forgets which events jobs had that are deleted.
function forget_event_index(ids)
  if call('EXISTS', tag .. ':event_index') == 0 then
    return
  end
  call_many('HDEL', tag .. ':event_index', ids)
  if call('EXISTS', tag .. ':long_histories') == 1 then
    for _, id in ipairs(ids) do
      if call('SREM', tag .. ':long_histories', id) == 1 then
        call('DEL', earlier_key(id))
      end
    end
  end
end

-- Whether a job has this very event.
function has_event(id, event)
  local index = call('HGET', tag .. ':event_index', id) or ''
  local positions = split(sub(index, -POSITION_BYTES * MAX_REPEAT_EVENTS), POSITION_BYTES)
  for latest = #positions, 1, -1 do
    local position = struct.unpack('>I6', positions[latest])
    local entry = call('XRANGE', tag .. ':events', format('%.0f', position), '+', 'COUNT', 1)[1]
    if entry then
      local fields = entry[2]
      local number = #fields - 2 * (last_position(entry[1]) - position)
      if fields[number] == event then
        return true
      end
    end
  end
  return false
end
