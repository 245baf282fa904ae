-- Returns waiting jobs of a queue that are due and were not promoted yet, the latest first: claims promote from the other
-- end, so what goes in between moves no page.
--
-- needs: calls record rate limits places line
-- KEYS  1: the partition
-- ARGV  1: now  2: queue  3: wait  4: how many to skip  5: how many at the most
-- Returns: {lane and wait of each job, …}

local answer = {}
local due = call('ZREVRANGEBYSCORE', delayed_key(ARGV[2], tonumber(ARGV[3])), ARGV[1], '-inf', 'LIMIT', ARGV[4], ARGV[5])
for _, record in ipairs(fetch(P .. ':j', due)) do
  answer[#answer + 1], answer[#answer + 2] = lane_in(record), string.byte(record, 6)
end
return answer
