-- Reads lines of series.
--
-- needs calls: tag, call, concat
-- KEYS     1: the partition
-- ARGV     1: step, subject, when the buckets begin (texts), and names; no names: all (msgpack)
-- Returns: one text, since a client reads many items slowly: for each line 8 bytes, number of the bucket from 0 (2), length of
--          the name (2) and of the line (4); the name, and the line

local step, subject, ats, names = unpack(cmsgpack.unpack(ARGV[1]))
local answer = {}

local function add(number, name, line)
  answer[#answer + 1] = struct.pack('>I2I2I4', number, #name, #line) .. name .. line
end

for number, at in ipairs(ats) do
  local key = tag .. ':series:' .. step .. ':' .. at .. ':' .. subject
  if names[1] then
    for index, line in ipairs(call('HMGET', key, unpack(names))) do
      if line then
        add(number - 1, names[index], line)
      end
    end
  else
    local found = call('HGETALL', key)
    for index = 1, #found, 2 do
      add(number - 1, found[index], found[index + 1])
    end
  end
end
return concat(answer)
