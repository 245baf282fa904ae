-- Returns what a partition knows of jobs.
--
-- needs calls: tag, call, fetch_fields, split
-- needs forgotten: remembered_ids
-- KEYS     1: the partition
-- ARGV     1: ids, 16 bytes each
-- Returns: for each 'stored', 'remembered' (it was, and its id is kept) or 'unknown'

local ids, answer = split(ARGV[1], 16), {}
local remembered = remembered_ids(ids)
local leftovers = call('EXISTS', tag .. ':leftovers') == 1 and fetch_fields(tag .. ':leftovers', ids) or {}
for number, id in ipairs(ids) do
  if call('HEXISTS', tag .. ':jobs', id) == 1 then
    answer[number] = 'stored'
  else
    answer[number] = (remembered[number] or leftovers[number]) and 'remembered' or 'unknown'
  end
end
return answer
