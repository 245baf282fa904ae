-- What an audit entry tells of limits before they change: as stores/limit_audit.py has it.
--
-- needs calls: tag, call, format
-- needs limit_defaults: PERMITS, MAX_RUNNING, RATE, PAUSES, has_bit
-- needs tenants: queue_of
-- needs subjects: limits_of
-- exports: facts_before

local PAUSE_NAMES = {[0] = 'none', [1] = 'schedule', [2] = 'retry', [3] = 'retry, schedule'}

-- Returns the limits of a subject, or of a default.
local function current(update)
  if update.is_default then
    local packed = call('HGET', tag .. ':limit_defaults', update.subject .. update.queue .. update.dependency)
    return packed and cmsgpack.unpack(packed) or {own = 0}
  end
  return limits_of(update)
end

-- Returns the facts of an update's subject whose names are those of the facts after it; nil if they are the same.
function facts_before(update, after)
  local limits = current(update)
  local pauses = limits.pauses or update.subject == 'q' and not update.is_default and queue_of(update.name).pauses or 0
  local function own(bit, value)
    return not has_bit(limits.own, bit) and 'default' or value or 'none'
  end
  local known = {
    permits = own(PERMITS, limits.permits), max_running = own(MAX_RUNNING, limits.max_running),
    rate = own(RATE, limits.count and format('%.0f/%gs', limits.count, limits.window)),
    pauses = own(PAUSES, PAUSE_NAMES[pauses]), weight = limits.weight,
  }
  local before, is_changed = {}, false
  for name, value in pairs(after) do
    before[name] = known[name]
    is_changed = is_changed or known[name] ~= value
  end
  return is_changed and before or nil
end
