-- Returns which entries were set or deleted since a change, each once.
--
-- needs calls: tag, call, sub, fetch_fields
-- KEYS     1: the partition
-- ARGV     1: number of the last change that the caller has seen  2: its stamp (8 bytes): the call that made it
-- Returns: {'changed', number and stamp of the newest change, then key, number of its last change, stored entry or '' if
--          it was deleted, …}
--          {'unknown', number, stamp}: that change is not known, or had another stamp

local seen, stamp = tonumber(ARGV[1]), ARGV[2]
local changes = tag .. ':entry_changes'
local newest = call('ZRANGE', changes, -1, -1, 'WITHSCORES')
local reply = {'unknown', tonumber(newest[2] or 0), newest[1] and sub(newest[1], 1, 8) or ''}
local known = call('ZRANGEBYSCORE', changes, seen, seen)[1]
if not known or sub(known, 1, 8) ~= stamp then
  return reply
end
reply[1] = 'changed'
local found = call('ZRANGEBYSCORE', changes, '(' .. ARGV[1], '+inf', 'WITHSCORES')
local keys, numbers = {}, {}
for index = 1, #found, 2 do
  local key = sub(found[index], 9)
  if not numbers[key] then
    keys[#keys + 1] = key
  end
  numbers[key] = tonumber(found[index + 1])
end
for index, data in ipairs(fetch_fields(tag .. ':entries', keys)) do
  local count = #reply
  reply[count + 1], reply[count + 2], reply[count + 3] = keys[index], numbers[keys[index]], data or ''
end
return reply
