-- Part of every script: the partition, and calls with any number of arguments.
-- KEYS[1]: the partition's hash tag, with which all of its keys begin.

local P = KEYS[1]
local call, floor, max, min = redis.call, math.floor, math.max, math.min
local concat, sub, format = table.concat, string.sub, string.format
local SLICE = 1000 -- arguments of one call: `unpack` fails near 8,000

local function many(command, key, list)
  for first = 1, #list, SLICE do
    call(command, key, unpack(list, first, min(first + SLICE - 1, #list)))
  end
end

local function fetch(key, fields)
  if #fields == 0 then
    return {}
  elseif #fields <= SLICE then
    return call('HMGET', key, unpack(fields))
  end
  local values = {}
  for first = 1, #fields, SLICE do
    local slice = call('HMGET', key, unpack(fields, first, min(first + SLICE - 1, #fields)))
    for number = 1, #slice do
      values[first + number - 1] = slice[number]
    end
  end
  return values
end

local function split(joined, width)
  local parts = {}
  for first = 1, #joined, width do
    parts[#parts + 1] = sub(joined, first, first + width - 1)
  end
  return parts
end

-- Wakes whoever waits for the bell, and says which queue it rings for; '*' is everything.
local function ring(queue)
  call('XADD', P .. ':b', 'MAXLEN', 64, '*', 'q', queue)
end
