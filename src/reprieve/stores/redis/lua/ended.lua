-- The index of ended jobs: sorted sets of ids by the time of their end. Dead jobs are listed by queue, tenant, task,
-- dependency, kind of death, code, fingerprint, and tenant with fingerprint, cancelled jobs by queue and tenant, and both
-- all together. A job without a code or fingerprint is in no list of these.
--
-- needs calls: tag, sub, call_many, list_in
-- needs record: DEAD, EXPIRED, CANCELLED, GIVEN_UP, lane_in, cause_in
-- needs causes: groups_of, count_deaths
-- exports: FINISHED_COUNTERS, new_index_changes, list_ended, unlist_ended, write_index

local DEAD_BY = tag .. ':dead_by:'
local QUEUES = {[DEAD] = ':dead:', [EXPIRED] = ':dead:', [CANCELLED] = ':cancelled:', [GIVEN_UP] = ':cancelled:'}
-- A lane's counter of jobs in each state.
FINISHED_COUNTERS = {[DEAD] = 'dead', [EXPIRED] = 'dead', [CANCELLED] = 'cancelled', [GIVEN_UP] = 'cancelled'}

-- Returns the sorted sets that list a dead or cancelled job, by its record.
local function keys_of(record)
  local state = string.byte(record, 5)
  local queue, tenant, dependency = string.match(lane_in(record), '^(%Z*)%z(%Z*)%z%Z*%z(%Z*)')
  local of_queue = tag .. QUEUES[state] .. queue
  if FINISHED_COUNTERS[state] == 'cancelled' then
    local by = tag .. ':cancelled_by:'
    return {of_queue, by .. 'a', by .. 't' .. tenant}
  end
  local death = cause_in(record)
  local keys = {of_queue, DEAD_BY .. 'a', DEAD_BY .. 'd' .. dependency, DEAD_BY .. 'x' .. death}
  for _, group in ipairs(groups_of(record)) do
    keys[#keys + 1] = DEAD_BY .. group
  end
  return keys
end

-- Returns the changes of the index that a script makes: none yet.
function new_index_changes()
  return {added = {}, removed = {}}
end

-- Lists a job that ends at this time.
function list_ended(changes, id, record, at)
  for _, key in ipairs(keys_of(record)) do
    local list = list_in(changes.added, key)
    list[#list + 1], list[#list + 2] = at, id
  end
end

-- Takes a job that waits again, or is deleted, from all lists.
function unlist_ended(changes, id, record)
  for _, key in ipairs(keys_of(record)) do
    local list = list_in(changes.removed, key)
    list[#list + 1] = id
  end
end

-- Returns the group of causes whose dead jobs a key lists; nil for other keys.
local function group_of(key)
  local group = sub(key, 1, #DEAD_BY) == DEAD_BY and sub(key, #DEAD_BY + 1)
  return group and string.find(group, '^[tkxcfp]') and group
end

-- Writes the changes, and counts the causes of the dead jobs among them.
function write_index(changes)
  local groups, deaths = {}, {}
  for key, ids in pairs(changes.removed) do
    call_many('ZREM', key, ids)
    groups[group_of(key) or false] = true
  end
  for key, times_and_ids in pairs(changes.added) do
    call_many('ZADD', key, times_and_ids)
    local group = group_of(key)
    if group then
      local times = {}
      for number = 1, #times_and_ids, 2 do
        times[#times + 1] = times_and_ids[number]
      end
      groups[group], deaths[group] = true, times
    end
  end
  groups[false] = nil
  count_deaths(groups, deaths)
end
