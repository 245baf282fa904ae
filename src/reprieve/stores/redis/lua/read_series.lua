-- Reads lines of series.
--
-- needs calls: tag, call
-- KEYS     1: the partition
-- ARGV     1: step, subject, when the buckets begin (texts), and names; no names: all (msgpack)
-- Returns: {when the bucket begins, name, line, …}

local step, subject, ats, names = unpack(cmsgpack.unpack(ARGV[1]))
local answer, count = {}, 0
for _, at in ipairs(ats) do
  local key = tag .. ':series:' .. step .. ':' .. at .. ':' .. subject
  if names[1] then
    for index, line in ipairs(call('HMGET', key, unpack(names))) do
      if line then
        answer[count + 1], answer[count + 2], answer[count + 3] = at, names[index], line
        count = count + 3
      end
    end
  else
    local found = call('HGETALL', key)
    for index = 1, #found, 2 do
      answer[count + 1], answer[count + 2], answer[count + 3] = at, found[index], found[index + 1]
      count = count + 3
    end
  end
end
return answer
