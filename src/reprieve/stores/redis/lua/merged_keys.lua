-- Keys of jobs, each a time and an entry that begins with the job's id: read from several lists, merged in order.
--
-- needs calls: call, sub, floor, max, min, format
-- needs byte_order: is_before_in_bytes
-- exports: is_beyond, comes_before, keys_of_set, merge_keys

-- Whether a key comes after a position, or before it if the newest come first.
function is_beyond(at, entry, position)
  if at ~= position.at then
    return (at > position.at) ~= position.is_newest
  end
  local id = sub(entry, 1, 16)
  return id ~= position.id and is_before_in_bytes(position.id, id) ~= position.is_newest
end

-- Whether a key comes before another.
function comes_before(one, other, is_newest)
  if one[1] ~= other[1] then
    return (one[1] < other[1]) ~= is_newest
  end
  return one[2] ~= other[2] and is_before_in_bytes(one[2], other[2]) ~= is_newest
end

-- Returns how many entries from the rank `low` on, and before `high`, all of the position's time, stand before its id, with
-- that of the id itself if the oldest come first; by halving, so it does not matter how many there are.
local function rank_of_position(key, position, low, high)
  while low < high do
    local middle = floor((low + high) / 2)
    local id = sub(call('ZRANGE', key, middle, middle)[1], 1, 16)
    if id == position.id and position.is_newest or is_before_in_bytes(position.id, id) then
      high = middle
    else
      low = middle + 1
    end
  end
  return low
end

-- Adds the next keys of a sorted set that have the position's time.
local function add_tied_keys(keys, key, position, count)
  local at = format('%.0f', position.at)
  local low, high = call('ZCOUNT', key, '-inf', '(' .. at), call('ZCOUNT', key, '-inf', at)
  if low == high then
    return
  end
  local rank = rank_of_position(key, position, low, high)
  if position.is_newest then
    local entries = rank > low and call('ZRANGE', key, max(low, rank - count), rank - 1) or {}
    for number = #entries, 1, -1 do
      keys[#keys + 1] = {position.at, entries[number]}
    end
  elseif rank < high then
    for _, entry in ipairs(call('ZRANGE', key, rank, min(high, rank + count) - 1)) do
      keys[#keys + 1] = {position.at, entry}
    end
  end
end

-- Returns the next keys of a sorted set beyond a position, with times from `since` on and before `before`.
function keys_of_set(key, since, before, position, count)
  local keys = {}
  if position.at >= since and position.at < before then
    add_tied_keys(keys, key, position, count)
  end
  if #keys == count then
    return keys
  end
  local command, from, to = 'ZRANGEBYSCORE', format('%.0f', max(since, position.at + 1)), '(' .. format('%.0f', before)
  if position.is_newest then
    command, from, to = 'ZREVRANGEBYSCORE', '(' .. format('%.0f', min(before, position.at)), format('%.0f', since)
  end
  local found = call(command, key, from, to, 'WITHSCORES', 'LIMIT', 0, count - #keys)
  for number = 1, #found, 2 do
    keys[#keys + 1] = {tonumber(found[number + 1]), found[number]}
  end
  return keys
end

-- Merges lists of keys of which at most `count` were read each. Returns {whether there may be more, time, entry, …}: up to
-- where every list is known.
function merge_keys(lists, count, most, is_newest)
  local all, is_cut = {}, 0
  local last
  for _, keys in ipairs(lists) do
    for _, key in ipairs(keys) do
      all[#all + 1] = key
    end
    if #keys >= count and (not last or comes_before(keys[#keys], last, is_newest)) then
      last, is_cut = keys[#keys], 1
    end
  end
  table.sort(all, function(one, other)
    return comes_before(one, other, is_newest)
  end)
  local answer = {is_cut}
  for number, key in ipairs(all) do
    if number > most or last and comes_before(last, key, is_newest) then
      answer[1] = 1
      break
    end
    answer[#answer + 1], answer[#answer + 2] = format('%.0f', key[1]), key[2]
  end
  return answer
end
