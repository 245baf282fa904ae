-- Returns the states of lanes.
--
-- needs calls: tag, fetch_fields
-- KEYS     1: the partition
-- ARGV     1: lanes, as msgpack
-- Returns: {the counters of each lane: ready, scheduled, retrying, parked, dead, cancelled, …}

local answer = {}
for _, packed in ipairs(fetch_fields(tag .. ':lanes', cmsgpack.unpack(ARGV[1]))) do
  local counters = packed and cmsgpack.unpack(packed) or {}
  for index = 1, 6 do
    answer[#answer + 1] = counters[index] or 0
  end
end
return answer
