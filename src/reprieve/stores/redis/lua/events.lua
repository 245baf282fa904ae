-- Part: what happened. Every call that has events writes one entry with all of them, or several if there are many.
--
--   :e  stream: the place of the entry's last event → 't' and the time of the latest, job and event, job and event, …
--   :ej hash: job → the places of its events, 6 bytes each
--   :m  hash: events = the last place, told = how many are kept. Places grow with the server's time, 64 a millisecond or
--       more if there are more, so that those of several partitions can be put in order

local MOST_EVENTS = 100000 -- kept at the most, however young
local REPEATS = 16 -- events of a job among which a repeat is looked for: it comes soon after the first time, or not at all

local function index_events(jobs, first)
  local known, order = {}, {}
  for number, id in ipairs(jobs) do
    if not known[id] then
      known[id] = {}
      order[#order + 1] = id
    end
    table.insert(known[id], struct.pack('>I6', first + number - 1))
  end
  local set = {}
  for number, before in ipairs(fetch(P .. ':ej', order)) do
    set[#set + 1] = order[number]
    set[#set + 1] = (before or '') .. concat(known[order[number]])
  end
  many('HSET', P .. ':ej', set)
end

-- Forgets an entry of the stream, by the place of its last event; answers how many events it had.
local function forget_entry(last, fields)
  local jobs, order = {}, {}
  for number = 3, #fields, 2 do
    local id = fields[number]
    if not jobs[id] then
      jobs[id] = true
      order[#order + 1] = id
    end
  end
  local set, gone = {}, {}
  for number, index in ipairs(fetch(P .. ':ej', order)) do
    local kept = {}
    for _, place in ipairs(split(index or '', 6)) do
      if struct.unpack('>I6', place) > last then
        kept[#kept + 1] = place
      end
    end
    if kept[1] then
      set[#set + 1], set[#set + 2] = order[number], concat(kept)
    else
      gone[#gone + 1] = order[number]
    end
  end
  many('HSET', P .. ':ej', set)
  many('HDEL', P .. ':ej', gone)
  call('XDEL', P .. ':e', format('%.0f-0', last))
  call('HINCRBY', P .. ':m', 'told', 1 - #fields / 2)
  return #fields / 2 - 1
end

local function last_place(entry)
  return tonumber(string.match(entry, '^(%d+)'))
end

-- Puts events on record: job and event in turn, the latest of them of this time.
local function tell(events, at)
  local count = #events / 2
  if count == 0 then
    return
  end
  local time = call('TIME')
  local earliest = (tonumber(time[1]) * 1000 + floor(tonumber(time[2]) / 1000)) * 64
  local first = max(tonumber(call('HGET', P .. ':m', 'events') or 0), earliest) + 1
  call('HSET', P .. ':m', 'events', format('%.0f', first + count - 1))
  for start = 1, #events, SLICE do
    local stop = min(start + SLICE - 1, #events)
    call('XADD', P .. ':e', format('%.0f-0', first + stop / 2 - 1), 't', format('%.0f', at), unpack(events, start, stop))
  end
  local jobs = {}
  for number = 1, #events, 2 do
    jobs[#jobs + 1] = events[number]
  end
  index_events(jobs, first)
  local excess = call('HINCRBY', P .. ':m', 'told', count) - MOST_EVENTS
  -- As many as came, and a few more: if there are far too many, the next calls go on.
  excess = min(excess, 2 * count)
  while excess > 0 do
    local entry = call('XRANGE', P .. ':e', '-', '+', 'COUNT', 1)[1]
    excess = excess - (entry and forget_entry(last_place(entry[1]), entry[2]) or excess)
  end
end

-- Whether this very event is on record.
local function is_told(id, event)
  local places = split(sub(call('HGET', P .. ':ej', id) or '', -6 * REPEATS), 6)
  for latest = #places, 1, -1 do
    local place = struct.unpack('>I6', places[latest])
    local entry = call('XRANGE', P .. ':e', format('%.0f', place), '+', 'COUNT', 1)[1]
    if entry then
      local fields = entry[2]
      local number = #fields - 2 * (last_place(entry[1]) - place)
      if fields[number] == event then
        return true
      end
    end
  end
  return false
end
