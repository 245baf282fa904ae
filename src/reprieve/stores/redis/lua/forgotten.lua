-- Part: jobs whose records have gone. Their ids are remembered for a while, so that a repeat of their enqueue, whose reply
-- was lost, does not make them anew.
--
--   :f:<5 bytes of an id> set: what else tells ids apart that were made in the same quarter of a second

local SHORTEST, LONGEST = 30, 600 -- seconds
local MOST = 150000 -- seconds times ids of a quarter of a second: ten minutes of a thousand jobs a second

-- Returns the ids by the quarters of a second in which they were made: for each the rest of them, and their numbers.
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

local function remember(ids)
  for time, quarter in pairs(by_quarter(ids)) do
    local key = P .. ':f:' .. time
    many('SADD', key, quarter.rests)
    call('EXPIRE', key, max(SHORTEST, min(LONGEST, floor(MOST / call('SCARD', key)))))
  end
end

-- Returns which of the ids are remembered, by their numbers.
local function forgotten(ids)
  local found = {}
  for time, quarter in pairs(by_quarter(ids)) do
    local answers = call('SMISMEMBER', P .. ':f:' .. time, unpack(quarter.rests))
    for place, is_known in ipairs(answers) do
      if is_known == 1 then
        found[quarter.numbers[place]] = true
      end
    end
  end
  return found
end
