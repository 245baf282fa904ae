-- Defaults of limits. What a tenant or limiter has of its own is stored with it; the rest is taken from the default when a
-- claim counts it. So a default costs the same however many names it holds for.
--
-- A default is a map: `own` (bits: see below), `permits`, `max_running`, `count`, `window`, `bucket`, `pauses`. The field of
-- `:limit_defaults` is the letter of a subject, see subjects.lua, and for tenants a queue, for pairs a dependency.
--
-- needs calls: tag, call, sub
-- needs limits: is_free
-- needs rate: change_rate
-- exports: PERMITS, MAX_RUNNING, RATE, PAUSES, has_bit, without_bit, inherit_tenant, inherit_limiter, inherit_pauses

PERMITS, MAX_RUNNING, RATE, PAUSES = 1, 2, 4, 8 -- as OWN_BITS in stores/limit_fields.py

local defaults

function has_bit(bits, bit)
  return bits % (2 * bit) >= bit
end

function without_bit(bits, bit)
  return has_bit(bits, bit) and bits - bit or bits
end

local function load_defaults()
  if not defaults then
    defaults = {}
    local found = call('HGETALL', tag .. ':limit_defaults')
    for index = 1, #found, 2 do
      defaults[found[index]] = cmsgpack.unpack(found[index + 1])
    end
    defaults.is_empty = not found[1]
  end
end

local NONE = {}

-- Returns the default that has a field: that of the scope, or that of all.
local function source_of(letter, scope, bit)
  local scoped, general = defaults[letter .. scope], defaults[letter]
  return scoped and has_bit(scoped.own, bit) and scoped or general and has_bit(general.own, bit) and general or NONE
end

local function inherit(limits, letter, scope, now)
  if not has_bit(limits.own, PERMITS) then
    limits.permits = source_of(letter, scope, PERMITS).permits or false
  end
  if not has_bit(limits.own, MAX_RUNNING) then
    limits.max_running = source_of(letter, scope, MAX_RUNNING).max_running or false
  end
  if not has_bit(limits.own, RATE) then
    local rate = source_of(letter, scope, RATE)
    local count, window = rate.count or false, rate.window or false
    if count ~= limits.count or window ~= limits.window then
      change_rate(limits, count, window, rate.bucket or false, now)
    end
  end
end

-- Gives a tenant the limits of the default where it has none of its own.
function inherit_tenant(tenant, now)
  load_defaults()
  if not (defaults.is_empty and is_free(tenant)) then
    inherit(tenant, 't', tenant.queue, now)
  end
end

-- Gives a limiter the limits of the default where it has none of its own.
function inherit_limiter(limiter, now)
  load_defaults()
  if not (defaults.is_empty and is_free(limiter)) then
    local letter, scope = sub(limiter.name, 1, 1), ''
    if letter == 'p' then
      scope = sub(limiter.name, string.find(limiter.name, '\0', 1, true) + 1)
    end
    inherit(limiter, letter, scope, now)
  end
end

-- Gives a queue the pauses of the default if it has none of its own, as its limiter knows.
function inherit_pauses(queue, limiter)
  load_defaults()
  if not has_bit(limiter.own, PAUSES) then
    queue.pauses = source_of('q', '', PAUSES).pauses or 0
  end
end
