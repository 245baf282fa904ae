-- Returns the counters of lanes and queues, and where waiting jobs are due that are not promoted yet: see find_due.lua.
--
-- needs calls: tag, call
-- needs waiting: delayed_key
-- KEYS     1: the partition
-- ARGV     1: now
-- Returns: {{lane, its state, …}, {queue, number of succeeded jobs, …}, {queue, wait in which jobs are due, …}}

local lanes, queues, due = {}, {}, {}
local states = call('HGETALL', tag .. ':lanes')
for number = 1, #states, 2 do
  lanes[number], lanes[number + 1] = states[number], cmsgpack.unpack(states[number + 1])
end
for _, queue in ipairs(call('HKEYS', tag .. ':queues')) do
  queues[#queues + 1], queues[#queues + 2] = queue, call('ZCARD', tag .. ':succeeded:' .. queue)
  for wait = 1, 3 do
    if call('ZCOUNT', delayed_key(queue, wait), '-inf', ARGV[1]) > 0 then
      due[#due + 1], due[#due + 2] = queue, wait
    end
  end
end
return {lanes, queues, due}
