-- Returns the next keys of some sorted sets of jobs, merged in order.
--
-- needs calls: tag, max
-- needs merged_keys: keys_of_set, merge_keys
-- KEYS     1: the partition
-- ARGV     1: the sets, each {key without the tag, first time, time before which it ends}, as msgpack
--          2: time and  3: id after which to go on  4: how many at most  5: '1' if the newest come first
-- Returns: see `merge_keys`

local sets, most = cmsgpack.unpack(ARGV[1]), tonumber(ARGV[4])
local position = {at = tonumber(ARGV[2]), id = ARGV[3], is_newest = ARGV[5] == '1'}
local count = max(8, math.ceil(2 * most / #sets))
local lists = {}
for number, set in ipairs(sets) do
  lists[number] = keys_of_set(tag .. ':' .. set[1], set[2], set[3], position, count)
end
return merge_keys(lists, count, most, position.is_newest)
