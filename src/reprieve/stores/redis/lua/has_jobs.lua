-- Returns what a partition knows of jobs.
--
-- needs calls: tag, call, fetch_fields, split
-- needs forgotten: remembered_ids
-- needs finished: has_succeeded
-- KEYS     1: the partition
-- ARGV     1: ids, 16 bytes each
-- Returns: for each 'stored', 'succeeded' (it is stored, too), 'remembered' (it was, and its id is kept) or 'unknown'

local ids, answer = split(ARGV[1], 16), {}
local remembered = remembered_ids(ids)
local leftovers = call('EXISTS', tag .. ':leftovers') == 1 and fetch_fields(tag .. ':leftovers', ids) or {}
for number, record in ipairs(fetch_fields(tag .. ':jobs', ids)) do
  if record then
    answer[number] = has_succeeded(ids[number], record) and 'succeeded' or 'stored'
  else
    answer[number] = (remembered[number] or leftovers[number]) and 'remembered' or 'unknown'
  end
end
return answer
