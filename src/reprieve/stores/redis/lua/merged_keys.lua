-- Keys of jobs, each a time and an entry that begins with the job's id: read from several lists, merged in order.
--
-- needs calls: call, sub, max, min, format
-- exports: is_beyond, keys_of_set, merge_keys

-- Whether a key comes after a position, or before it if the newest come first.
function is_beyond(at, entry, position)
  if at ~= position.at then
    return (at > position.at) ~= position.is_newest
  end
  local id = sub(entry, 1, 16)
  return id ~= position.id and (id > position.id) ~= position.is_newest
end

-- Returns the next keys of a sorted set beyond a position, with times from `since` on and before `before`.
function keys_of_set(key, since, before, position, count)
  local keys, skipped = {}, 0
  local command, from, to = 'ZRANGEBYSCORE', format('%.0f', max(since, position.at)), '(' .. format('%.0f', before)
  if position.is_newest then
    command, from, to = 'ZREVRANGEBYSCORE', '(' .. format('%.0f', min(before, position.at + 1)), format('%.0f', since)
  end
  repeat
    local found = call(command, key, from, to, 'WITHSCORES', 'LIMIT', skipped, count)
    for number = 1, #found, 2 do
      local at = tonumber(found[number + 1])
      if #keys < count and is_beyond(at, found[number], position) then
        keys[#keys + 1] = {at, found[number]}
      end
    end
    skipped = skipped + #found / 2
  until #keys >= count or #found < 2 * count
  return keys
end

-- Merges lists of keys of which at most `count` were read each. Returns {whether there may be more, time, entry, …}: up to
-- where every list is known.
function merge_keys(lists, count, most, is_newest)
  local all, is_cut = {}, 0
  local function comes_before(one, other)
    if one[1] ~= other[1] then
      return (one[1] < other[1]) ~= is_newest
    end
    return one[2] ~= other[2] and (one[2] < other[2]) ~= is_newest
  end
  local last
  for _, keys in ipairs(lists) do
    for _, key in ipairs(keys) do
      all[#all + 1] = key
    end
    if #keys >= count and (not last or comes_before(keys[#keys], last)) then
      last, is_cut = keys[#keys], 1
    end
  end
  table.sort(all, comes_before)
  local answer = {is_cut}
  for number, key in ipairs(all) do
    if number > most or last and comes_before(last, key) then
      answer[1] = 1
      break
    end
    answer[#answer + 1], answer[#answer + 2] = format('%.0f', key[1]), key[2]
  end
  return answer
end
