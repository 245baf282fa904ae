-- Part: what a limiter or a tenant may have under way, and has.
-- Limits have `running`, and may have `permits`, `max_running`, and a rate: `count`, `window`, `bucket`, `meter`.

local function is_free(limits)
  return not (limits.permits or limits.max_running or limits.count)
end

-- How many more may start; nil is any number.
local function room_of(limits, now)
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

local function take_slot(limits, now)
  limits.running = limits.running + 1
  limits.is_changed = true
  if limits.count then
    spend(limits, now, 1)
  end
end

-- What was taken came to nothing.
local function give_back(limits)
  limits.running = limits.running - 1
  limits.is_changed = true
  if limits.count then
    refund(limits, 1)
  end
end

-- When to look again if there is no room; nil when only an end or a person makes some.
local function back_at(limits, now)
  -- A count of 0 is a share that somebody else has: no time brings it.
  if limits.count and limits.count > 0 and granted(limits, now) >= limits.count then
    return opens_at(limits, now)
  end
end

-- Nothing is written for what nothing limits.
local function write_limits(fields, first, limits)
  if not is_free(limits) then
    fields[first], fields[first + 1] = limits.permits or false, limits.max_running or false
    fields[first + 2], fields[first + 3] = limits.count or false, limits.window or false
    fields[first + 4], fields[first + 5] = limits.bucket or false, limits.count and limits.meter or false
  end
  return fields
end
