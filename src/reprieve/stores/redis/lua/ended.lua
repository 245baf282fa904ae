-- Returns dead, cancelled or succeeded jobs of a queue, in the order of their end.
--
-- needs: calls forgotten record rate limits places line events settle look_part
-- KEYS  1: the partition
-- ARGV  1: 'x', 'c' or 'ok'  2: queue  3: when the last one ended  4: its id, or ''  5: about how many
-- Returns: as in look_part.lua, but each with when it ended before it

local key, ids, times = P .. ':' .. ARGV[1] .. ':' .. ARGV[2], {}, {}
local from, last, wanted = tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5])
local found = call('ZRANGEBYSCORE', key, ARGV[3], '+inf', 'WITHSCORES', 'LIMIT', 0, wanted)
if found[1] and found[#found] == ARGV[3] then
  -- More ended at one moment than a page holds: all of them.
  found = call('ZRANGEBYSCORE', key, ARGV[3], ARGV[3], 'WITHSCORES')
  if last ~= '' and found[#found - 1] == last then
    found = call('ZRANGEBYSCORE', key, '(' .. ARGV[3], '+inf', 'WITHSCORES', 'LIMIT', 0, wanted)
  end
end
for number = 1, #found, 2 do
  if tonumber(found[number + 1]) > from or found[number] > last then
    ids[#ids + 1] = found[number]
    times[found[number]] = found[number + 1]
  end
end
local answer, looked = {}, look(ids)
for number = 1, #looked, 6 do
  answer[#answer + 1] = times[looked[number]]
  for place = number, number + 5 do
    answer[#answer + 1] = looked[place]
  end
end
return answer
