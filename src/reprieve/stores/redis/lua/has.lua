-- Returns what a partition knows of jobs.
--
-- needs: calls forgotten
-- KEYS  1: the partition
-- ARGV  1: ids, 16 bytes each
-- Returns: for each 2 if it is here, 1 if it was and is remembered, 0 if not

local ids, answer = split(ARGV[1], 16), {}
local was = forgotten(ids)
local left = call('EXISTS', P .. ':lo') == 1 and fetch(P .. ':lo', ids) or {}
for number, id in ipairs(ids) do
  answer[number] = call('HEXISTS', P .. ':j', id) == 1 and 2 or (was[number] or left[number]) and 1 or 0
end
return answer
