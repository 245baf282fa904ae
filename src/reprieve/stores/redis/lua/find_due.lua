-- Returns waiting jobs of a queue that are due and not promoted yet, the latest first: claims promote from the other
-- end, so a claim in between moves no page.
--
-- needs calls: tag, call, fetch_fields
-- needs record: sound, lost_lane, lane_in
-- needs waiting: delayed_key
-- KEYS     1: the partition
-- ARGV     1: now  2: queue  3: wait  4: how many to skip  5: how many at most
-- Returns: {lane and wait of each job, …}

local key, answer = delayed_key(ARGV[2], tonumber(ARGV[3])), {}
local ids = call('ZREVRANGEBYSCORE', key, ARGV[1], '-inf', 'LIMIT', ARGV[4], ARGV[5])
for _, record in ipairs(fetch_fields(tag .. ':jobs', ids)) do
  record = sound(record or '', 0, lost_lane(ARGV[2]))
  answer[#answer + 1], answer[#answer + 2] = lane_in(record), string.byte(record, 6)
end
return answer
