-- Returns the next keys of ready jobs of some lanes, merged in order. An entry may be a leftover: its version tells.
--
-- Fresh jobs stand in a list by when they were enqueued, which is nearly the order of the times in their ids: a part of a long
-- list is read from `SLACK` entries before the position to as many after the last. Within a millisecond they stand in any order
-- of their ids: all entries of the first and of the last time are read.
--
-- needs calls: call, floor, max, min
-- needs waiting: fresh_key, requeued_key, id_time
-- needs merged_keys: is_beyond, comes_before, keys_of_set, merge_keys
-- KEYS     1: the partition
-- ARGV     1: lanes, as msgpack  2: time and  3: id after which to go on  4: how many at most
--          5: '1' if the newest come first
-- Returns: see `merge_keys`

local SLACK = 64
local lane_names, most = cmsgpack.unpack(ARGV[1]), tonumber(ARGV[4])
local position = {at = tonumber(ARGV[2]), id = ARGV[3], is_newest = ARGV[5] == '1'}
local count = max(8, math.ceil(2 * most / #lane_names))

-- Returns the index of the first entry of a time or a later one.
local function index_of(key, length, at)
  local low, high = 0, length
  while low < high do
    local middle = floor((low + high) / 2)
    if id_time(call('LINDEX', key, middle)) >= at then
      high = middle
    else
      low = middle + 1
    end
  end
  return low
end

local function fresh_entries(key)
  local length = call('LLEN', key)
  if length <= count + 2 * SLACK then
    return call('LRANGE', key, 0, -1)
  end
  local first, last = index_of(key, length, position.at), index_of(key, length, position.at + 1)
  if position.is_newest then
    first = max(0, first - count)
    first = index_of(key, length, id_time(call('LINDEX', key, min(first, length - 1))))
  else
    last = min(last + count, length - 1)
    last = index_of(key, length, id_time(call('LINDEX', key, last)) + 1)
  end
  return call('LRANGE', key, max(0, first - SLACK), last + SLACK)
end

local function is_next(one, other)
  return comes_before(one, other, position.is_newest)
end

-- Sorts keys, and leaves the first of them.
local function keep_first(keys)
  table.sort(keys, is_next)
  for number = #keys, count + 1, -1 do
    keys[number] = nil
  end
end

local function fresh_keys(key)
  local keys, last = {}, nil
  for _, entry in ipairs(fresh_entries(key)) do
    local at = id_time(entry)
    local found = {at, entry}
    if is_beyond(at, entry, position) and not (last and is_next(last, found)) then
      keys[#keys + 1] = found
      if #keys >= 4 * count then
        keep_first(keys)
        last = keys[count]
      end
    end
  end
  keep_first(keys)
  return keys
end

local lists = {}
for _, name in ipairs(lane_names) do
  lists[#lists + 1] = fresh_keys(fresh_key(name))
  lists[#lists + 1] = keys_of_set(requeued_key(name), 0, 2 ^ 53, position, count)
end
return merge_keys(lists, count, most, position.is_newest)
