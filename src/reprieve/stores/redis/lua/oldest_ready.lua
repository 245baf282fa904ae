-- Returns since when the first job of each lane is ready: no job of it is ready for longer.
--
-- needs calls: format
-- needs waiting: ready_since
-- KEYS     1: the partition
-- ARGV     1: names of lanes (msgpack)
-- Returns: for each lane a time, or '' if it has no ready job, or its jobs have an SLA

local answer = {}
for number, name in ipairs(cmsgpack.unpack(ARGV[1])) do
  local at = ready_since(name)
  answer[number] = at and format('%.0f', at) or ''
end
return answer
