-- Returns dead, cancelled or succeeded jobs of a queue, in the order of their end.
--
-- needs calls: tag, call
-- needs stored_jobs: STORED_FIELDS, read_stored
-- KEYS     1: the partition
-- ARGV     1: 'dead', 'cancelled' or 'succeeded'  2: queue  3: when the last one ended  4: its id, or ''
--          5: about how many
-- Returns: for each job when it ended, then as in `add_stored`

local key, from, last, limit = tag .. ':' .. ARGV[1] .. ':' .. ARGV[2], ARGV[3], ARGV[4], ARGV[5]

-- Returns ids and times from `from` on.
local function read_page()
  local found = call('ZRANGEBYSCORE', key, from, '+inf', 'WITHSCORES', 'LIMIT', 0, limit)
  if not found[1] or found[#found] ~= from then
    return found
  end
  -- More jobs ended at one moment than a page holds: all of them.
  found = call('ZRANGEBYSCORE', key, from, from, 'WITHSCORES')
  if last ~= '' and found[#found - 1] == last then
    return call('ZRANGEBYSCORE', key, '(' .. from, '+inf', 'WITHSCORES', 'LIMIT', 0, limit)
  end
  return found
end

local found, ids, times = read_page(), {}, {}
for number = 1, #found, 2 do
  if tonumber(found[number + 1]) > tonumber(from) or found[number] > last then
    ids[#ids + 1] = found[number]
    times[found[number]] = found[number + 1]
  end
end
local answer, stored = {}, read_stored(ids)
for first = 1, #stored, STORED_FIELDS do
  answer[#answer + 1] = times[stored[first]]
  for index = first, first + STORED_FIELDS - 1 do
    answer[#answer + 1] = stored[index]
  end
end
return answer
