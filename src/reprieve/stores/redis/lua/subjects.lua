-- The limits of a subject: a map with `subject` (t, q, k, d, g or p for tenant, queue, task, dependency, group or a tenant and
-- a dependency together), `name`, for a tenant its `queue`, and for a pair its `dependency`.
--
-- needs tenants: tenants, load_tenants, unblock
-- needs limiters: limiters, load_limiters, recheck_at
-- needs limit_defaults: inherit_tenant, inherit_limiter
-- exports: load_subjects, limits_of, inherit_limits, allow

local function tenant_key(subject)
  return subject.queue .. '\0' .. subject.name
end

local function limiter_name(subject)
  return subject.subject .. subject.name .. (subject.subject == 'p' and '\0' .. subject.dependency or '')
end

function load_subjects(subjects)
  local tenant_keys, limiter_names = {}, {}
  for _, subject in ipairs(subjects) do
    if subject.subject == 't' then
      tenant_keys[#tenant_keys + 1] = tenant_key(subject)
    else
      limiter_names[#limiter_names + 1] = limiter_name(subject)
    end
  end
  load_tenants(tenant_keys)
  load_limiters(limiter_names)
end

-- Returns the tenant or limiter of a subject that is loaded.
function limits_of(subject)
  return subject.subject == 't' and tenants[tenant_key(subject)] or limiters[limiter_name(subject)]
end

-- Gives the limits of a subject those of the default where it has none of its own.
function inherit_limits(subject, now)
  (subject.subject == 't' and inherit_tenant or inherit_limiter)(limits_of(subject), now)
end

-- Lets the next claim check what the limits of a subject blocked.
function allow(subject)
  local limits = limits_of(subject)
  if subject.subject == 't' then
    unblock(limits)
  elseif limits.blocked_tenants > 0 then
    recheck_at(limits, 0)
  end
end
