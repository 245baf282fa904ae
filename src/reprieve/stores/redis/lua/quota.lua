-- Shares of limits that hold for several partitions.
--
-- needs: calls record rate limits places line
-- KEYS  1: the partition
-- ARGV  1: 'begin', 'read', 'freeze' or 'grant', now, epoch, items, number of the state of `:want` that is dealt out
--          (msgpack); an item is subject letter, name, queue, and for 'grant' the shares of permits, max_running and the
--          rate's count, each a number or false
-- Returns: of 'begin', to the first partition: {'ok', a new epoch}
--         {'stale'} if somebody has frozen the partition since, or has told it of a newer state; else 'ok' and for each
--          item what runs, what its rate has granted, whether more is wanted, and its shares of permits, max_running and
--          count so far
-- A partition that is frozen grants nothing beyond what it has under way, until its new shares come.

local word, now, epoch, items, number = unpack(cmsgpack.unpack(ARGV[1]))
local last, heeds = unpack(call('HMGET', P .. ':m', 'epoch', 'heeds'))
last, heeds = tonumber(last or 0), tonumber(heeds or 0)
if word == 'freeze' or word == 'grant' then
  if number < heeds or epoch < last or (word == 'grant' and epoch ~= last) then
    return {'stale'}
  end
end
if word ~= 'read' then
  -- A full server allows this write, and with it all that follow.
  call('HDEL', P .. ':m', '')
end
if word == 'begin' then
  return {'ok', call('HINCRBY', P .. ':m', 'epochs', 1)}
elseif word == 'freeze' then
  call('HSET', P .. ':m', 'epoch', format('%.0f', epoch))
end
local answer = {'ok'}
for _, item in ipairs(items) do
  local limits
  if item[1] == 't' then
    meet_tenants({item[3] .. '\0' .. item[2]})
    limits = tenants[item[3] .. '\0' .. item[2]]
  else
    meet_limiters({item[1] .. item[2]})
    limits = limiters[item[1] .. item[2]]
  end
  local used = limits.count and granted(limits, now) or 0
  local wants = room_of(limits, now) == 0 and (
    item[1] == 't' and limits.open > 0
    or item[1] == 'q' and call('EXISTS', P .. ':t:' .. item[2]) == 1
    or (limits.aside or 0) > 0)
  answer[#answer + 1], answer[#answer + 2], answer[#answer + 3] = limits.running, used, wants and 1 or 0
  answer[#answer + 1], answer[#answer + 2] = limits.permits or 0, limits.max_running or 0
  answer[#answer + 1] = limits.count or 0
  if word ~= 'read' then
    limits.is_changed = true
    local permits, most, count = item[4], item[5], item[6]
    if word == 'freeze' then
      permits = limits.permits and min(limits.permits, limits.running)
      most = limits.max_running and min(limits.max_running, limits.running)
      count = limits.count and min(limits.count, used)
    end
    if limits.permits and permits then
      limits.permits = permits
    end
    if limits.max_running and most then
      limits.max_running = most
    end
    if limits.count and count then
      limits.count = count
    end
    if word == 'grant' then
      if item[1] == 't' then
        unblock(limits)
      elseif limits.aside > 0 then
        look_again(limits, 0)
      end
    end
  end
end
if word ~= 'read' then
  flush()
  if word == 'grant' then
    ring('*')
  end
end
return answer
