-- Events of jobs. A call that has events writes one entry of the stream `:events` with all of them, or several if there
-- are many. The entry's id is the position of its last event. Positions grow with the server's time, by 64 a
-- millisecond or more, so that the events of several partitions can be put in order.
--
-- needs calls: tag, call, max, min, concat, sub, format, server_time
-- needs calls: MAX_ARGUMENTS, call_many, fetch_fields, split, list_in
-- exports: last_position, record_events, forget_events, has_event

local MAX_EVENTS = 100000 -- kept at most, however recent
local MAX_REPEAT_EVENTS = 16 -- latest events of a job that a repeat is compared with: it comes soon, or not at all
local MAX_INDEXED_EVENTS = 200 -- latest events of a job that are found by its id
local POSITION_BYTES = 6
local POSITIONS_PER_MS = 64

-- Returns the position of the last event of a stream entry.
function last_position(entry_id)
  return tonumber(string.match(entry_id, '^(%d+)'))
end

local function index_events(jobs, first)
  local positions, order = {}, {}
  for number, id in ipairs(jobs) do
    if not positions[id] then
      order[#order + 1] = id
    end
    local list = list_in(positions, id)
    list[#list + 1] = struct.pack('>I6', first + number - 1)
  end
  local set = {}
  for number, before in ipairs(fetch_fields(tag .. ':event_index', order)) do
    set[#set + 1] = order[number]
    set[#set + 1] = sub((before or '') .. concat(positions[order[number]]), -POSITION_BYTES * MAX_INDEXED_EVENTS)
  end
  call_many('HSET', tag .. ':event_index', set)
end

-- Removes the events of an entry, and all before it, from the index of their jobs.
local function unindex_events(last, jobs)
  local set, gone = {}, {}
  for number, index in ipairs(fetch_fields(tag .. ':event_index', jobs)) do
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
  call_many('HSET', tag .. ':event_index', set)
  call_many('HDEL', tag .. ':event_index', gone)
end

-- Deletes an entry of the stream; returns how many events it had.
local function forget_entry(entry)
  local last, fields, seen, jobs = last_position(entry[1]), entry[2], {}, {}
  for number = 3, #fields, 2 do
    local id = fields[number]
    if not seen[id] then
      seen[id] = true
      jobs[#jobs + 1] = id
    end
  end
  unindex_events(last, jobs)
  call('XDEL', tag .. ':events', format('%.0f-0', last))
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

-- Records events: job and event in turn, the latest of them of this time.
function record_events(events, at)
  local count = #events / 2
  if count == 0 then
    return
  end
  local earliest = server_time() * POSITIONS_PER_MS
  local first = max(tonumber(call('HGET', tag .. ':meta', 'last_event') or 0), earliest) + 1
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
  local excess = call('HINCRBY', tag .. ':meta', 'event_count', count) - MAX_EVENTS
  -- Twice as many as came at most: if there are far too many, the next calls go on.
  forget_events(min(excess, 2 * count))
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
