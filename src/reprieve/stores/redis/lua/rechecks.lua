-- What is to be checked again: limiters and tenants in `:rechecks`, by when.
--
-- A new default concerns all that waits for an old one, which may be any number of members, so claims search for them in
-- steps. While a search lasts, `s` and the letter of its subject, see subjects.lua, stand before all members; how far it has
-- come is in `:meta`.
--
-- needs calls: tag, call, sub, call_many
-- exports: begin_search, take_rechecks

local MAX_RECHECKS = 16 -- limiters and tenants that one claim checks again; the next goes on
local MAX_MEMBERS = 200 -- that one claim looks at, for each subject with a new default
local FIRST = -1 -- before 0, the score of what is to be checked at once

-- Lets claims find all that limits of a subject block; those that were found before are found again.
function begin_search(letter)
  call('HDEL', tag .. ':meta', 'recheck_cursor:' .. letter)
  call('ZADD', tag .. ':rechecks', FIRST, 's' .. letter)
end

-- Lets members of a subject be checked at once, some with each call.
local function search(letter)
  local field, rechecks = 'recheck_cursor:' .. letter, {}
  local cursor, found = unpack(call('ZSCAN', tag .. ':rechecks', call('HGET', tag .. ':meta', field) or '0', 'COUNT', MAX_MEMBERS))
  for number = 1, #found, 2 do
    if sub(found[number], 1, 1) == letter then
      rechecks[#rechecks + 1], rechecks[#rechecks + 2] = 0, found[number]
    end
  end
  call_many('ZADD', tag .. ':rechecks', rechecks)
  if cursor == '0' then
    call('HDEL', tag .. ':meta', field)
    call('ZREM', tag .. ':rechecks', 's' .. letter)
  else
    call('HSET', tag .. ':meta', field, cursor)
  end
end

local function first_due(now)
  return call('ZRANGEBYSCORE', tag .. ':rechecks', '-inf', now, 'LIMIT', 0, MAX_RECHECKS)
end

-- Goes on with the searches that stand first among due members. Returns whether there was any.
local function go_on_searching(due)
  local has_searched = false
  for _, member in ipairs(due) do
    if sub(member, 1, 1) == 's' then
      search(sub(member, 2))
      has_searched = true
    end
  end
  return has_searched
end

-- Takes the first tenants off `:rechecks` that are due, and finds the first limiters. Returns the keys of the tenants, the
-- names of the limiters, and whether there may be more.
function take_rechecks(now)
  local due, tenant_members, keys, names = first_due(now), {}, {}, {}
  if go_on_searching(due) then
    due = first_due(now)
  end
  for _, member in ipairs(due) do
    local letter = sub(member, 1, 1)
    if letter == 't' then
      tenant_members[#tenant_members + 1], keys[#keys + 1] = member, sub(member, 2)
    elseif letter ~= 's' then
      names[#names + 1] = member
    end
  end
  -- Also tenants that no limit blocks, or they would be read by every claim.
  call_many('ZREM', tag .. ':rechecks', tenant_members)
  return keys, names, #due == MAX_RECHECKS
end
