-- Returns the names of a list of causes after a place, in descending order.
--
-- needs calls: tag, call, floor
-- needs byte_order: is_before_in_bytes
-- KEYS     1: the partition
-- ARGV     1: 'causes' (by count) or 'causes_last' (by time)  2: the list, with its fate: see causes.lua
--          3: the count or time of the place, '' for the beginning  4: its name  5: how many
-- Returns: {names in the list, name, count or time, …}

local key = tag .. ':' .. ARGV[1] .. ':' .. ARGV[2]
local size, value, place, count = call('ZCARD', key), tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5])

-- Returns the rank of the first name after the place.
local function rank_after_place()
  local low, high = 0, size
  while low < high do
    local middle = floor((low + high) / 2)
    local found = call('ZREVRANGE', key, middle, middle, 'WITHSCORES')
    local score = tonumber(found[2])
    if score < value or score == value and is_before_in_bytes(found[1], place) then
      high = middle
    else
      low = middle + 1
    end
  end
  return low
end

local first = value and rank_after_place() or 0
local answer = {size}
for number, item in ipairs(call('ZREVRANGE', key, first, first + count - 1, 'WITHSCORES')) do
  answer[number + 1] = item
end
return answer
