-- A partition's shares of limits that hold for all partitions. A frozen partition grants nothing beyond what it has
-- running, until it is granted its new shares.
--
-- needs calls: tag, call, min, format, write_even_when_full, notify
-- needs rate: granted
-- needs limits: room_of
-- needs lanes: flush
-- needs subjects: load_subjects, limits_of, inherit_limits, allow
-- KEYS     1: the partition
-- ARGV     1: step ('begin', 'read', 'freeze' or 'grant'), now, epoch, items, number of the wanted state (msgpack)
--             An item is a subject, see subjects.lua, with the shares of a grant: `permits`, `max_running`, `count`
-- Returns: of 'begin', in the first partition: {'ok', a new epoch}
--          {'stale'}: the partition was frozen since, or told of a newer state; nothing was done
--          else 'ok' and for each item: jobs that run, starts that its rate has granted, whether more is wanted, and the
--          shares of permits, max_running and count before this call

local step, now, epoch, items, number = unpack(cmsgpack.unpack(ARGV[1]))

local function is_stale()
  local last, applied = unpack(call('HMGET', tag .. ':meta', 'epoch', 'applied_state'))
  last, applied = tonumber(last or 0), tonumber(applied or 0)
  return number < applied or epoch < last or step == 'grant' and epoch ~= last
end

-- Whether jobs wait that this subject's limits block.
local function wants_more(item, limits)
  if room_of(limits, now) ~= 0 then
    return false
  elseif item.subject == 't' then
    return limits.open > 0
  end
  local has_candidates = item.subject == 'q' and call('EXISTS', tag .. ':candidates:' .. item.name) == 1
  return has_candidates or limits.blocked_tenants > 0
end

local function set_shares(limits, permits, max_running, count)
  limits.is_changed = true
  limits.permits = limits.permits and permits or limits.permits
  limits.max_running = limits.max_running and max_running or limits.max_running
  limits.count = limits.count and count or limits.count
end

local function freeze(limits, used)
  set_shares(limits,
    limits.permits and min(limits.permits, limits.running),
    limits.max_running and min(limits.max_running, limits.running),
    limits.count and min(limits.count, used))
end

if (step == 'freeze' or step == 'grant') and is_stale() then
  return {'stale'}
end
if step ~= 'read' then
  write_even_when_full()
end
if step == 'begin' then
  return {'ok', call('HINCRBY', tag .. ':meta', 'last_epoch', 1)}
elseif step == 'freeze' then
  call('HSET', tag .. ':meta', 'epoch', format('%.0f', epoch))
end
load_subjects(items)
local answer = {'ok'}
for _, item in ipairs(items) do
  local limits = limits_of(item)
  inherit_limits(item, now)
  local used = limits.count and granted(limits, now) or 0
  local count = #answer
  answer[count + 1], answer[count + 2] = limits.running, used
  answer[count + 3] = wants_more(item, limits) and 1 or 0
  answer[count + 4], answer[count + 5] = limits.permits or 0, limits.max_running or 0
  answer[count + 6] = limits.count or 0
  if step == 'freeze' then
    freeze(limits, used)
  elseif step == 'grant' then
    set_shares(limits, item.permits, item.max_running, item.count)
    allow(item)
  end
end
if step ~= 'read' then
  flush()
end
if step == 'grant' then
  notify('*')
end
return answer
