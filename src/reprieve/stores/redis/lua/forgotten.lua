-- Ids of jobs whose records are deleted. They are remembered for a while, so that a repeated enqueue, whose first reply
-- was lost, does not create the job again.
--
-- needs calls: tag, call, floor, max, min, sub, call_many
-- exports: remember_ids, remembered_ids

local MIN_REMEMBERED_SECONDS, MAX_REMEMBERED_SECONDS = 30, 600
local MAX_ID_SECONDS = 150000 -- ids of a quarter of a second × seconds: ten minutes at a thousand jobs a second

-- Groups ids by the quarter of a second in which they were made: the rest of each id, and its number in the list.
local function by_quarter(ids)
  local quarters = {}
  for number, id in ipairs(ids) do
    local time = sub(id, 1, 5)
    local quarter = quarters[time]
    if not quarter then
      quarter = {rests = {}, numbers = {}}
      quarters[time] = quarter
    end
    local count = #quarter.rests + 1
    -- The two bytes that are left out are the same for all jobs of a partition.
    quarter.rests[count], quarter.numbers[count] = sub(id, 6, 6) .. sub(id, 9), number
  end
  return quarters
end

function remember_ids(ids)
  for time, quarter in pairs(by_quarter(ids)) do
    local key = tag .. ':forgotten:' .. time
    call_many('SADD', key, quarter.rests)
    local seconds = floor(MAX_ID_SECONDS / call('SCARD', key))
    call('EXPIRE', key, max(MIN_REMEMBERED_SECONDS, min(MAX_REMEMBERED_SECONDS, seconds)))
  end
end

-- Returns which ids are remembered, by their numbers in the list.
function remembered_ids(ids)
  local found = {}
  for time, quarter in pairs(by_quarter(ids)) do
    local is_member = call('SMISMEMBER', tag .. ':forgotten:' .. time, unpack(quarter.rests))
    for index, number in ipairs(quarter.numbers) do
      if is_member[index] == 1 then
        found[number] = true
      end
    end
  end
  return found
end
