-- Returns events in their order.
--
-- needs calls: tag, call, format, split, server_time
-- needs events: last_position
-- KEYS     1: the partition
-- ARGV     1: the position after which to go on  2: how many at most  3: a job's id, or '' for all jobs
-- Returns: {the server's time in ms, position, id, event, …}

local after, limit = tonumber(ARGV[1]), tonumber(ARGV[2])
local answer = {server_time()}

-- Adds the events of a stream entry, or the one at a position.
local function add(entry, only)
  local fields, last = entry[2], last_position(entry[1])
  for number = 3, #fields, 2 do
    local position = last - (#fields - number - 1) / 2
    if position > after and (not only or only == position) and #answer <= 3 * limit - 2 then
      answer[#answer + 1] = format('%.0f', position)
      answer[#answer + 1], answer[#answer + 2] = fields[number], fields[number + 1]
    end
  end
end

if ARGV[3] == '' then
  for _, entry in ipairs(call('XRANGE', tag .. ':events', format('%.0f', after + 1), '+', 'COUNT', limit)) do
    add(entry)
  end
else
  for _, packed in ipairs(split(call('HGET', tag .. ':event_index', ARGV[3]) or '', 6)) do
    local position = struct.unpack('>I6', packed)
    local entry = call('XRANGE', tag .. ':events', format('%.0f', position), '+', 'COUNT', 1)[1]
    if entry then
      add(entry, position)
    end
  end
end
return answer
