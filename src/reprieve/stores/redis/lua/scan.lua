-- Returns a part of all jobs, in no order that means anything.
--
-- needs: calls forgotten record rate limits places line events settle look_part
-- KEYS  1: the partition
-- ARGV  1: where to go on, '0' at first  2: about how many
-- Returns: {where to go on, '0' at the end, then as in look_part.lua}

local page = call('HSCAN', P .. ':j', ARGV[1], 'COUNT', ARGV[2])
local ids = {}
for number = 1, #page[2], 2 do
  ids[#ids + 1] = page[2][number]
end
table.sort(ids)
local answer = {page[1]}
for _, part in ipairs(look(ids)) do
  answer[#answer + 1] = part
end
return answer
