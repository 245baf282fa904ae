-- Returns a part of all jobs, in no particular order.
--
-- needs calls: tag, call
-- needs stored_jobs: read_stored
-- KEYS     1: the partition
-- ARGV     1: cursor, '0' at first  2: about how many
-- Returns: {cursor of the next part, '0' at the end, then as in `add_stored`}

local page = call('HSCAN', tag .. ':jobs', ARGV[1], 'COUNT', ARGV[2])
local ids = {}
for number = 1, #page[2], 2 do
  ids[#ids + 1] = page[2][number]
end
table.sort(ids)
local answer = read_stored(ids)
table.insert(answer, 1, page[1])
return answer
