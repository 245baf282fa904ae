-- Answers what is counted, and the waiting jobs that are due and were not promoted yet.
--
-- needs: calls record rate limits places line
-- KEYS  1: the partition
-- ARGV  1: now
-- Answer: {number of shelves, shelf, its counters, …, number of queues, queue, succeeded jobs, …, then shelf and wait of
--          each job that is due}

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
    local due = call('ZRANGEBYSCORE', delayed_key(queue, wait), '-inf', ARGV[1])
    for _, record in ipairs(fetch(P .. ':j', due)) do
      add(shelf_in(record))
      add(string.byte(record, 6))
    end
  end
end
return answer
