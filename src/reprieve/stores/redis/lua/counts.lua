-- Returns what is counted, and where waiting jobs are due that were not promoted yet: see due.lua.
--
-- needs: calls record rate limits places line
-- KEYS  1: the partition
-- ARGV  1: now
-- Returns: {number of lanes, lane, its counters, …, number of queues, queue, succeeded jobs, …, then queue and wait in
--          which jobs are due}

local answer = {}
local function add(part)
  answer[#answer + 1] = part
end
local counted = call('HGETALL', P .. ':s')
add(#counted / 2)
for number = 1, #counted, 2 do
  add(counted[number])
  add(cmsgpack.unpack(counted[number + 1]))
end
local names = call('HKEYS', P .. ':q')
add(#names)
for _, queue in ipairs(names) do
  add(queue)
  add(call('ZCARD', P .. ':ok:' .. queue))
end
for _, queue in ipairs(names) do
  for wait = 1, 3 do
    if call('ZCOUNT', delayed_key(queue, wait), '-inf', ARGV[1]) > 0 then
      add(queue)
      add(wait)
    end
  end
end
return answer
