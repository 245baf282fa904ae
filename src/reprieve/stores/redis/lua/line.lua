-- Part: jobs take their place in line: in the lane of their lane, or among those that wait for a time.
--
--   :l:<lane> list: what is ready, oldest first
--   :d:<queue \0 wait> sorted set: what waits for a time → when; wait is 1 (schedule), 2 (retry) or 3 (limiter or budget)
--   :lo hash: ids whose leftover entries still stand in lanes → how many

local COUNTERS = {[0] = 'ready', 'scheduled', 'retrying', 'parked', 'parked'}
local WAITS = {[0] = 1, 1, 2, 3, 3} -- a job that is due later waits for its time, whatever else was said

local function delayed_key(queue, wait)
  return P .. ':d:' .. queue .. '\0' .. WAITS[wait]
end

local function new_line()
  return {front = {}, back = {}, delayed = {}, rung = {}}
end

-- Notes where a waiting job goes. Those who come back stand before those who come.
local function stand(line, lane, id, version, wait, due, now, is_back)
  local queue = lane.place.queue
  if due > now then
    local key = delayed_key(queue, wait)
    local list = line.delayed[key]
    if not list then
      list = {}
      line.delayed[key] = list
    end
    list[#list + 1], list[#list + 2] = due, id
    local counter = COUNTERS[wait == 0 and 1 or wait]
    lane[counter] = lane[counter] + 1
    lane.is_changed = true
  else
    local lanes = is_back and line.front or line.back
    local list = lanes[lane.name]
    if not list then
      -- A look at the length fails before anything is written if somebody else's key is in our way.
      call('LLEN', P .. ':l:' .. lane.name)
      list = {}
      lanes[lane.name] = list
    end
    list[#list + 1] = entry_of(id, version)
    lane.ready = lane.ready + 1
    line.rung[queue] = true
  end
end

local function form(line)
  for name, entries in pairs(line.front) do
    for first = 1, floor(#entries / 2) do
      local last = #entries + 1 - first
      entries[first], entries[last] = entries[last], entries[first]
    end
    many('LPUSH', P .. ':l:' .. name, entries)
    relist(lanes[name])
  end
  for name, entries in pairs(line.back) do
    many('RPUSH', P .. ':l:' .. name, entries)
    relist(lanes[name])
  end
  for key, list in pairs(line.delayed) do
    many('ZADD', key, list)
  end
end
