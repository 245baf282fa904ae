-- Returns waiting jobs that are due and not promoted yet, and how many succeeded jobs each queue keeps.
--
-- needs calls: tag, call, fetch_fields
-- needs record: sound, lost_lane, lane_in
-- needs waiting: delayed_key
-- KEYS     1: the partition
-- ARGV     1: now  2: how many jobs at most
-- Returns: {{lane and wait of each job, …}, {queue, number of succeeded jobs, …}}

local due, succeeded, left = {}, {}, tonumber(ARGV[2])
for _, queue in ipairs(call('HKEYS', tag .. ':queues')) do
  succeeded[#succeeded + 1], succeeded[#succeeded + 2] = queue, call('ZCARD', tag .. ':succeeded:' .. queue)
  for wait = 1, 3 do
    local ids = left > 0 and call('ZRANGEBYSCORE', delayed_key(queue, wait), '-inf', ARGV[1], 'LIMIT', 0, left) or {}
    left = left - #ids
    for _, record in ipairs(fetch_fields(tag .. ':jobs', ids)) do
      record = sound(record or '', 0, lost_lane(queue))
      due[#due + 1], due[#due + 2] = lane_in(record), string.byte(record, 6)
    end
  end
end
return {due, succeeded}
