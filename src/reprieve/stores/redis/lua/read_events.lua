-- Returns events between two positions, in their order or the latest first.
--
-- needs calls: tag, call, format, server_time
-- needs events: last_position, positions_of
-- KEYS     1: the partition
-- ARGV     1: after which position  2: before which; '' for no limit  3: how many at most  4: '1' for the latest first
--          5: a job's id, or '' for all jobs
-- Returns: {the server's time in ms, the newest position, up to which position events were deleted,
--           position, id, event, …}

local ENTRIES_PER_READ = 20 -- each has up to 500 events

local after, before, limit = tonumber(ARGV[1]), tonumber(ARGV[2]) or math.huge, tonumber(ARGV[3])
local is_newest_first = ARGV[4] == '1'
local meta = call('HMGET', tag .. ':meta', 'last_event', 'events_pruned')
local answer, count = {server_time(), meta[1] or '0', meta[2] or '0'}, 0

-- Adds the event at a place of a stream entry.
local function add_field(fields, number, position)
  answer[#answer + 1] = format('%.0f', position)
  answer[#answer + 1], answer[#answer + 2] = fields[number], fields[number + 1]
  count = count + 1
end

-- Adds the events of a stream entry.
local function add_entry(entry)
  local fields, last = entry[2], last_position(entry[1])
  local from, to, step = 3, #fields - 1, 2
  if is_newest_first then
    from, to, step = to, from, -step
  end
  for number = from, to, step do
    local position = last - (#fields - number - 1) / 2
    if position > after and position < before and count < limit then
      add_field(fields, number, position)
    end
  end
end

-- Adds the event at a position, if it is still there.
local function add_position(position)
  local entry = call('XRANGE', tag .. ':events', format('%.0f', position), '+', 'COUNT', 1)[1]
  local number = entry and #entry[2] - 1 - 2 * (last_position(entry[1]) - position)
  if number and number >= 3 then
    add_field(entry[2], number, position)
  end
end

if ARGV[5] ~= '' then
  for _, position in ipairs(positions_of(ARGV[5], after, before, is_newest_first, limit)) do
    add_position(position)
  end
  return answer
end
local from, to = after + 1, before - 1
if is_newest_first and before < math.huge then
  -- The entry that ends after the position may begin before it.
  for _, entry in ipairs(call('XRANGE', tag .. ':events', format('%.0f', before), '+', 'COUNT', 1)) do
    add_entry(entry)
  end
end
while count < limit do
  local entries
  if is_newest_first then
    entries = call('XREVRANGE', tag .. ':events', to < math.huge and format('%.0f', to) or '+', format('%.0f', from), 'COUNT',
      ENTRIES_PER_READ)
  else
    entries = call('XRANGE', tag .. ':events', format('%.0f', from), '+', 'COUNT', ENTRIES_PER_READ)
  end
  for _, entry in ipairs(entries) do
    add_entry(entry)
    if is_newest_first then
      to = last_position(entry[1]) - 1
    else
      from = last_position(entry[1]) + 1
    end
  end
  if #entries < ENTRIES_PER_READ or from > to then
    break
  end
end
return answer
