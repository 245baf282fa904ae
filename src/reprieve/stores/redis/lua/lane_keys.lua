-- Returns the next keys of ready jobs of some lanes, merged in order. An entry may be a leftover: its version tells.
--
-- Fresh jobs stand in a list by when they were enqueued, which is nearly the order of their ids: a part of a long list is read
-- from `SLACK` entries before the position to as many after the last.
--
-- needs calls: call, max
-- needs waiting: fresh_key, requeued_key, id_time
-- needs merged_keys: is_beyond, keys_of_set, merge_keys
-- KEYS     1: the partition
-- ARGV     1: lanes, as msgpack  2: time and  3: id after which to go on  4: how many at most
--          5: '1' if the newest come first
-- Returns: see `merge_keys`

local SLACK = 64
local lane_names, most = cmsgpack.unpack(ARGV[1]), tonumber(ARGV[4])
local position = {at = tonumber(ARGV[2]), id = ARGV[3], is_newest = ARGV[5] == '1'}
local count = max(8, math.ceil(2 * most / #lane_names))

-- Returns the index of the first entry at the position's time or later.
local function index_of_position(key, length)
  local low, high = 0, length
  while low < high do
    local middle = math.floor((low + high) / 2)
    if id_time(call('LINDEX', key, middle)) >= position.at then
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
  local index = index_of_position(key, length)
  if position.is_newest then
    return call('LRANGE', key, max(0, index - count - SLACK), index + SLACK)
  end
  return call('LRANGE', key, max(0, index - SLACK), index + count + SLACK)
end

local function fresh_keys(key)
  local keys = {}
  for _, entry in ipairs(fresh_entries(key)) do
    local at = id_time(entry)
    if is_beyond(at, entry, position) then
      keys[#keys + 1] = {at, entry}
    end
  end
  table.sort(keys, function(one, other)
    return one[2] ~= other[2] and (one[2] < other[2]) ~= position.is_newest
  end)
  for number = #keys, count + 1, -1 do
    keys[number] = nil
  end
  return keys
end

local lists = {}
for _, name in ipairs(lane_names) do
  lists[#lists + 1] = fresh_keys(fresh_key(name))
  lists[#lists + 1] = keys_of_set(requeued_key(name), 0, 2 ^ 53, position, count)
end
return merge_keys(lists, count, most, position.is_newest)
