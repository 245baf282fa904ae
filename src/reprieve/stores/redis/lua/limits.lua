-- How many jobs a limiter or a tenant may have running, and has.
-- Limits are a table with `running`, and if they are set `permits`, `max_running` and a rate: `count`, `window`,
-- `bucket`, `meter`. `own` says which of them are not those of the default: see limit_defaults.lua.
--
-- needs calls: max, min
-- needs rate: granted, spend, refund, opens_at
-- exports: is_free, room_of, take_slot, give_back, back_at, pack_limits

-- Whether nothing limits it.
function is_free(limits)
  return not (limits.permits or limits.max_running or limits.count)
end

-- Returns how many more jobs may start; nil: any number.
function room_of(limits, now)
  local room
  if limits.permits then
    room = limits.permits - limits.running
  end
  if limits.max_running then
    room = min(room or limits.max_running, limits.max_running - limits.running)
  end
  if limits.count then
    local left = limits.count - granted(limits, now)
    room = min(room or left, left)
  end
  return room and max(0, room)
end

function take_slot(limits, now)
  limits.running = limits.running + 1
  limits.is_changed = true
  if limits.count then
    spend(limits, now, 1)
  end
end

-- Undoes `take_slot` for a job that did not start.
function give_back(limits)
  limits.running = limits.running - 1
  limits.is_changed = true
  if limits.count then
    refund(limits, 1)
  end
end

-- Returns when a full limit has room again; nil: when a job ends or a limit changes.
function back_at(limits, now)
  -- A count of 0 is a share that another partition has: no time brings it.
  if limits.count and limits.count > 0 and granted(limits, now) >= limits.count then
    return opens_at(limits, now)
  end
end

-- Adds limits to the fields of a stored state, from a position on; nothing where nothing is limited.
function pack_limits(fields, first, limits)
  if limits.own ~= 0 or not is_free(limits) then
    fields[first], fields[first + 1] = limits.permits or false, limits.max_running or false
    fields[first + 2], fields[first + 3] = limits.count or false, limits.window or false
    fields[first + 4], fields[first + 5] = limits.bucket or false, limits.count and limits.meter or false
    fields[first + 6] = limits.own
  end
  return fields
end
