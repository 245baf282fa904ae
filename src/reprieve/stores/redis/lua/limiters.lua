-- Limiters: the limits of a queue, a task, a dependency, a group, or a tenant and a dependency together. Each is read
-- once, changed in memory, and written once by `flush_limiters`. A limiter's name is a letter and a name: q<queue>, k<task>,
-- d<dependency>, g<group>, p<tenant \0 dependency>.
--
-- needs calls: tag, call, call_many, fetch_fields, unread_names
-- needs limits: pack_limits
-- exports: limiters, load_limiters, recheck_at, flush_limiters

limiters = {}

-- Reads limiters that this script has not read yet.
function load_limiters(names)
  local unread = unread_names(limiters, names)
  for number, packed in ipairs(fetch_fields(tag .. ':limiters', unread)) do
    local f = packed and cmsgpack.unpack(packed) or {}
    limiters[unread[number]] = {
      name = unread[number], running = f[1] or 0, blocked_tenants = f[2] or 0,
      permits = f[3] or false, max_running = f[4] or false,
      count = f[5] or false, window = f[6] or false, bucket = f[7] or false, meter = f[8] or false,
      own = f[9] or 0,
      is_changed = false,
    }
  end
end

-- Lets a claim check a limiter again from a moment on; math.huge: only when something changes; nil: it blocks nothing.
function recheck_at(limiter, at)
  if at then
    call('ZADD', tag .. ':rechecks', at, limiter.name)
  else
    call('ZREM', tag .. ':rechecks', limiter.name)
  end
end

function flush_limiters()
  local set, gone = {}, {}
  for name, limiter in pairs(limiters) do
    if limiter.is_changed then
      -- What a default limits is known without it, but not what its rate has granted.
      local is_idle = limiter.running == 0 and limiter.blocked_tenants == 0
      if is_idle and limiter.own == 0 and not limiter.count then
        gone[#gone + 1] = name
      else
        set[#set + 1] = name
        set[#set + 1] = cmsgpack.pack(pack_limits({limiter.running, limiter.blocked_tenants}, 3, limiter))
      end
    end
  end
  call_many('HSET', tag .. ':limiters', set)
  call_many('HDEL', tag .. ':limiters', gone)
end
