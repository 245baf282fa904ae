-- Exclusion: what a claim skips because its session cannot run some tasks, and how much it may skip; the rules of
-- `core/fairness/exclusion.py`.
--
-- An exclusion is a table for one queue:
--   tasks          the excluded tasks, as a set
--   tenants, lanes which part of them the claim looks at, where there are more than it may skip: from 0 to below 1, or
--                  -1 for the end
--
-- needs calls: tag, call, floor, max, sub
-- exports: new_exclusion, jump, skip_excluded, look_again_at

-- Makes the exclusion of one queue: tasks, and the parts to look at.
function new_exclusion(tasks, tenants, lanes, settings)
  return {
    tasks = tasks, tenants = tenants, lanes = lanes, settings = settings,
    tenants_left = settings.max_excluded_tenants, has_skipped = false, has_jumped = false, parts = 1,
  }
end

-- Returns how many of `count` items to leave out before the `size` items that this claim looks at.
local function part(exclusion, count, size, turn)
  local parts = math.ceil(count / size)
  if parts <= 1 then
    return 0
  end
  exclusion.parts = max(exclusion.parts, 2 * parts)
  -- Tenants and lanes that are served stand at the end, behind all that are not.
  return turn < 0 and count - size or size * floor(turn * parts)
end

-- Returns how many of the next `count` candidates to leave out; nil: the claim has read enough of them.
function jump(exclusion, count)
  if exclusion.has_jumped then
    return
  end
  exclusion.has_jumped, exclusion.tenants_left = true, exclusion.settings.max_excluded_tenants
  return part(exclusion, count, exclusion.tenants_left, exclusion.tenants)
end

-- Returns those of a tenant's lanes whose task is not excluded, `most` of them.
local function included(exclusion, tenant, names, most)
  local kept, tasks, first = {}, exclusion.tasks, #tenant.key + 2
  for number = 1, #names do
    local name = names[number]
    -- queue \0 tenant \0 task \0 …
    if not tasks[sub(name, first, string.find(name, '\0', first, true) - 1)] then
      kept[#kept + 1] = name
      if #kept == most then
        break
      end
    end
  end
  return kept
end

-- Takes the excluded lanes out of those that were read of tenants, `lists` of names; looks further where none is left.
function skip_excluded(exclusion, some, lists)
  local beyond, most = {}, exclusion.settings.max_lanes_read
  for number, tenant in ipairs(some) do
    local kept = included(exclusion, tenant, lists[number])
    if #kept < #lists[number] then
      tenant.has_excluded, lists[number] = true, kept
      if tenant.has_more and not kept[1] then
        beyond[#beyond + 1] = number
      end
    end
  end
  local size = max(most, floor(exclusion.settings.max_excluded_lanes / #beyond))
  for _, number in ipairs(beyond) do
    local tenant = some[number]
    local skip = part(exclusion, tenant.open, size, exclusion.lanes)
    local names = call('ZRANGE', tag .. ':open_lanes:' .. tenant.key, skip, skip + size - 1)
    local kept = included(exclusion, tenant, names, most + 1)
    tenant.has_more = #kept > most
    kept[most + 1] = nil
    lists[number] = kept
  end
  for number, tenant in ipairs(some) do
    if tenant.has_excluded then
      exclusion.has_skipped = true
      exclusion.tenants_left = exclusion.tenants_left - (lists[number][1] and 0 or 1)
    end
  end
end

-- Returns when the session looks again at what it has skipped; nil if that is nothing.
function look_again_at(exclusion, now, has_picks)
  if not exclusion.has_skipped then
    return
  elseif exclusion.parts == 1 then
    return now + exclusion.settings.excluded_recheck_ms
  elseif has_picks then
    return now
  end
  local settings = exclusion.settings
  return now + max(settings.min_excluded_recheck_ms, floor(settings.excluded_recheck_ms / exclusion.parts))
end
