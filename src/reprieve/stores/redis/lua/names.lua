-- Names of tasks (`k`), dependencies (`d`) and groups (`g`), each after its letter, in the order of bytes: `:names` has those of all
-- lanes, and names whose lanes are gone until the next search has gone through all lanes. `:names_next` is what the search has
-- found, and the names of lanes that are new since it began; in the end it becomes `:names`. A name that is known is not
-- written again.
--
-- needs calls: tag, call, call_many
-- exports: add_names, sweep_names

local MAX_LANES = 500 -- that one step of the search reads

-- Returns the names of lanes, each after a score of 0.
local function names_in(lanes)
  local members, known = {}, {}
  for _, lane in ipairs(lanes) do
    local task, dependency, group = string.match(lane, '^%Z*%z%Z*%z(%Z*)%z(%Z*)%z(%Z*)%z')
    for letter, name in pairs({k = task, d = dependency, g = group}) do
      local member = letter .. name
      if name ~= '' and not known[member] then
        known[member] = true
        members[#members + 1], members[#members + 2] = 0, member
      end
    end
  end
  return members
end

-- Adds the names of new lanes.
function add_names(lanes)
  if lanes[1] then
    local members = names_in(lanes)
    call_many('ZADD', tag .. ':names', members)
    call_many('ZADD', tag .. ':names_next', members)
  end
end

-- Goes on with the search after a lane, '' for the beginning. Returns the last lane that it has read; nil: that was the end.
function sweep_names(after)
  local next_names = tag .. ':names_next'
  if after == '' then
    call('UNLINK', next_names)
  end
  local first = after == '' and '-' or '(' .. after
  local found = call('ZRANGEBYLEX', tag .. ':lane_names', first, '+', 'LIMIT', 0, MAX_LANES)
  call_many('ZADD', next_names, names_in(found))
  if #found == MAX_LANES then
    return found[MAX_LANES]
  elseif call('EXISTS', next_names) == 1 then
    call('RENAME', next_names, tag .. ':names')
  else
    call('UNLINK', tag .. ':names')
  end
end
