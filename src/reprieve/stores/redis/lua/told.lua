-- Returns events in their order.
--
-- needs: calls record rate limits places line events
-- KEYS  1: the partition
-- ARGV  1: the place after which to go on  2: how many at the most  3: an id, or '' for all jobs
-- Returns: {the server's time in ms, place, id, event, …}

local time = call('TIME')
local after, limit = tonumber(ARGV[1]), tonumber(ARGV[2])
local answer = {tonumber(time[1]) * 1000 + floor(tonumber(time[2]) / 1000)}

local function add(entry, only)
  local fields, last = entry[2], last_place(entry[1])
  for number = 3, #fields, 2 do
    local place = last - (#fields - number - 1) / 2
    if place > after and (not only or only == place) and #answer <= 3 * limit - 2 then
      answer[#answer + 1] = format('%.0f', place)
      answer[#answer + 1], answer[#answer + 2] = fields[number], fields[number + 1]
    end
  end
end

if ARGV[3] == '' then
  for _, entry in ipairs(call('XRANGE', P .. ':e', format('%.0f', after + 1), '+', 'COUNT', limit)) do
    add(entry)
  end
else
  for _, packed in ipairs(split(call('HGET', P .. ':ej', ARGV[3]) or '', 6)) do
    local place = struct.unpack('>I6', packed)
    local entry = call('XRANGE', P .. ':e', format('%.0f', place), '+', 'COUNT', 1)[1]
    if entry then
      add(entry, place)
    end
  end
end
return answer
