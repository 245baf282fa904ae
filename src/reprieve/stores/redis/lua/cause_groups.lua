-- Returns what is known of groups of dead jobs, or of failures that jobs survived.
--
-- needs calls: tag, call, sub, format, fetch_fields
-- KEYS     1: the partition
-- ARGV     1: 'd' (dead) or 'l' (failures)  2: the first hour that is wanted  3: the groups (msgpack): see causes.lua
-- Returns: {{count (0: none; of failures 1), first time, last time, id of the last job, … for each group},
--           {number of a group from 0 on, hour, count in that hour, …}}

local fate, first_hour, groups = ARGV[1], tonumber(ARGV[2]), cmsgpack.unpack(ARGV[3])
local facts, hours = {}, {}

local function add(count, first_at, last_at, id)
  local size = #facts
  facts[size + 1], facts[size + 2], facts[size + 3], facts[size + 4] = count, first_at, last_at, id
end

if fate == 'd' then
  for _, group in ipairs(groups) do
    local key = tag .. ':dead_by:' .. group
    local first, last = call('ZRANGE', key, 0, 0, 'WITHSCORES'), call('ZREVRANGE', key, 0, 0, 'WITHSCORES')
    add(call('ZCARD', key), first[2] or '0', last[2] or '0', last[1] or '')
  end
else
  for _, packed in ipairs(fetch_fields(tag .. ':failing', groups)) do
    if packed then
      local first_at, last_at, id = struct.unpack('>ddc16', packed)
      add(1, format('%.0f', first_at), format('%.0f', last_at), id)
    else
      add(0, '0', '0', '')
    end
  end
end
for _, name in ipairs(call('ZRANGEBYSCORE', tag .. ':cause_hours', first_hour, '+inf')) do
  if sub(name, 1, 1) == fate then
    for number, count in ipairs(fetch_fields(tag .. ':cause_hours:' .. name, groups)) do
      if count then
        local size = #hours
        hours[size + 1], hours[size + 2], hours[size + 3] = number - 1, sub(name, 2), count
      end
    end
  end
end
return {facts, hours}
