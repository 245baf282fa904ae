-- The causes of failures: groups of dead jobs, and of failures that jobs survived, with their counts.
-- A group is a letter and a name: `t` tenant, `k` task, `x` kind of death, `c` code, `f` fingerprint, and `p` tenant and
-- fingerprint with a NUL between them. A fate is `d` for dead jobs and `l` for failures of jobs that live.
--
-- `:causes:<fate><list>` has the names of a list by their counts, `:causes_last:<fate><list>` by the time of the last job. A list
-- is the letter of a group, or `p` and a tenant (its fingerprints), or `h` and a fingerprint (the tenants that it hits).
-- The count, the first and the last of dead jobs are those of the index of ended jobs; of failures, `:failing` has the first
-- time, the last time (8 bytes each) and the last job. `:cause_hours:<fate><hour>` has the counts of groups in one hour, and
-- `:cause_hours` the hours that are kept. `:codes:<fate>` has the codes among the names in the order of bytes.
--
-- needs calls: tag, call, floor, min, sub, call_many, fetch_fields, list_in
-- needs record: lane_in, cause_in
-- exports: groups_of, count_deaths, new_failures, add_failure, write_failures, prune_causes

local HOUR_MS, DAY_MS = 3600000, 86400000
local MAX_MEMBERS = 500 -- of one command that takes a score for each
local MAX_SCANS = 10 -- each looks at ten times as many places as counts are wanted, most of which may be empty
local SEEN = '>ddc16'

-- Returns the groups that a job belongs to by its record, but not that of its kind of death.
function groups_of(record)
  local tenant, task = string.match(lane_in(record), '^%Z*%z(%Z*)%z(%Z*)')
  local _, code, fingerprint = cause_in(record)
  local groups = {'t' .. tenant, 'k' .. task}
  if code ~= '' then
    groups[#groups + 1] = 'c' .. code
  end
  if fingerprint ~= '' then
    groups[#groups + 1], groups[#groups + 2] = 'f' .. fingerprint, 'p' .. tenant .. '\0' .. fingerprint
  end
  return groups
end

-- Returns the lists that a group is in, each followed by its name there.
local function lists_of(group)
  local letter, name = sub(group, 1, 1), sub(group, 2)
  if letter ~= 'p' then
    return {letter, name}
  end
  local tenant, fingerprint = string.match(name, '^(%Z*)%z(.*)$')
  return {'p' .. tenant, fingerprint, 'h' .. fingerprint, tenant}
end

-- Adds to the counts of groups in one hour.
local function add_hour(fate, hour, counts)
  local key, groups, set = tag .. ':cause_hours:' .. fate .. hour, {}, {}
  for group in pairs(counts) do
    groups[#groups + 1] = group
  end
  for number, count in ipairs(fetch_fields(key, groups)) do
    local group = groups[number]
    set[#set + 1], set[#set + 2] = group, (tonumber(count) or 0) + counts[group]
  end
  call_many('HSET', key, set)
  call('ZADD', tag .. ':cause_hours', hour, fate .. hour)
end

-- Lists codes, each after a number.
local function add_codes(fate, scores)
  local members = {}
  for number = 2, #(scores or {}), 2 do
    members[number - 1], members[number] = 0, scores[number]
  end
  call_many('ZADD', tag .. ':codes:' .. fate, members)
end

local function forget_codes(fate, codes)
  call_many('ZREM', tag .. ':codes:' .. fate, codes or {})
end

-- Takes the index of ended jobs over into the counts of these groups; `deaths` has the times of new deaths by group.
function count_deaths(groups, deaths)
  local counts, lasts, empty, hours = {}, {}, {}, {}
  for group in pairs(groups) do
    local key, lists = tag .. ':dead_by:' .. group, lists_of(group)
    local count = call('ZCARD', key)
    local last = count > 0 and call('ZREVRANGE', key, 0, 0, 'WITHSCORES')[2]
    for number = 1, #lists, 2 do
      local list, name = lists[number], lists[number + 1]
      if count == 0 then
        local gone = list_in(empty, list)
        gone[#gone + 1] = name
      else
        local by_count, by_last = list_in(counts, list), list_in(lasts, list)
        by_count[#by_count + 1], by_count[#by_count + 2] = count, name
        by_last[#by_last + 1], by_last[#by_last + 2] = last, name
      end
    end
    for _, at in ipairs(deaths[group] or {}) do
      local in_hour = list_in(hours, floor(at / HOUR_MS))
      in_hour[group] = (in_hour[group] or 0) + 1
    end
  end
  forget_codes('d', empty.c)
  add_codes('d', counts.c)
  for list, names in pairs(empty) do
    call_many('ZREM', tag .. ':causes:d' .. list, names)
    call_many('ZREM', tag .. ':causes_last:d' .. list, names)
  end
  for list, scores in pairs(counts) do
    call_many('ZADD', tag .. ':causes:d' .. list, scores)
    call_many('ZADD', tag .. ':causes_last:d' .. list, lasts[list])
  end
  for hour, in_hour in pairs(hours) do
    add_hour('d', hour, in_hour)
  end
end

-- Returns the failures that jobs survive in a script: none yet.
function new_failures()
  return {seen = {}, hours = {}}
end

-- Counts a failure that a job survives, by its new record.
function add_failure(failures, id, record, at)
  local in_hour = list_in(failures.hours, floor(at / HOUR_MS))
  for _, group in ipairs(groups_of(record)) do
    local seen = failures.seen[group]
    if not seen then
      seen = {count = 0, first_at = at, last_at = at, id = id}
      failures.seen[group] = seen
    end
    seen.count, seen.first_at = seen.count + 1, min(seen.first_at, at)
    if at >= seen.last_at then
      seen.last_at, seen.id = at, id
    end
    in_hour[group] = (in_hour[group] or 0) + 1
  end
end

-- Adds to the scores of a sorted set; `counts` has them by name.
local function add_scores(key, counts)
  local names = {}
  for name in pairs(counts) do
    names[#names + 1] = name
  end
  for first = 1, #names, MAX_MEMBERS do
    local last, set = min(first + MAX_MEMBERS - 1, #names), {}
    for number, score in ipairs(call('ZMSCORE', key, unpack(names, first, last))) do
      local name = names[first + number - 1]
      set[#set + 1], set[#set + 2] = (tonumber(score or 0)) + counts[name], name
    end
    call_many('ZADD', key, set)
  end
end

-- Writes the failures that jobs survived.
function write_failures(failures)
  local groups, set, counts, lasts = {}, {}, {}, {}
  for group in pairs(failures.seen) do
    groups[#groups + 1] = group
  end
  for number, packed in ipairs(fetch_fields(tag .. ':failing', groups)) do
    local group = groups[number]
    local seen, lists = failures.seen[group], lists_of(group)
    local first_at, last_at, id = seen.first_at, seen.last_at, seen.id
    if packed then
      local first, last, sample = struct.unpack(SEEN, packed)
      if last >= first_at - DAY_MS then
        first_at = first
      end
      if last > last_at then
        last_at, id = last, sample
      end
    end
    set[#set + 1], set[#set + 2] = group, struct.pack(SEEN, first_at, last_at, id)
    for index = 1, #lists, 2 do
      local list, name = lists[index], lists[index + 1]
      list_in(counts, list)[name] = seen.count
      local by_last = list_in(lasts, list)
      by_last[#by_last + 1], by_last[#by_last + 2] = last_at, name
    end
  end
  call_many('HSET', tag .. ':failing', set)
  add_codes('l', lasts.c)
  for list, scores in pairs(counts) do
    add_scores(tag .. ':causes:l' .. list, scores)
    call_many('ZADD', tag .. ':causes_last:l' .. list, lasts[list])
  end
  for hour, in_hour in pairs(failures.hours) do
    add_hour('l', hour, in_hour)
  end
end

-- Takes failures of an hour that is kept no longer from the counts of their group.
local function forget_failures(group, count)
  local lists, is_gone = lists_of(group), false
  for number = 1, #lists, 2 do
    local list, name = lists[number], lists[number + 1]
    is_gone = tonumber(call('ZINCRBY', tag .. ':causes:l' .. list, -count, name)) <= 0
    if is_gone then
      call('ZREM', tag .. ':causes:l' .. list, name)
      call('ZREM', tag .. ':causes_last:l' .. list, name)
      forget_codes('l', list == 'c' and {name} or nil)
    end
  end
  if is_gone then
    call('HDEL', tag .. ':failing', group)
  end
end

-- Forgets counts of an hour of failures that is kept no longer, about so many at most; returns how many. The next call goes on
-- where this one stops.
local function forget_hour(name, most)
  local key, field, deleted = tag .. ':cause_hours:' .. name, 'hour_cursor:' .. name, 0
  local cursor = call('HGET', tag .. ':meta', field) or '0'
  for _ = 1, MAX_SCANS do
    local found = call('HSCAN', key, cursor, 'COUNT', most - deleted)
    local counts, gone = {}, {}
    for number = 1, #found[2], 2 do
      counts[found[2][number]] = tonumber(found[2][number + 1])
    end
    for group, count in pairs(counts) do
      forget_failures(group, count)
      gone[#gone + 1] = group
    end
    call_many('HDEL', key, gone)
    cursor, deleted = found[1], deleted + #gone
    if cursor == '0' or deleted >= most then
      break
    end
  end
  if call('EXISTS', key) == 0 then
    call('ZREM', tag .. ':cause_hours', name)
    call('HDEL', tag .. ':meta', field)
  else
    call('HSET', tag .. ':meta', field, cursor)
  end
  return deleted
end

-- Deletes the counts of hours before these, about so many at most; returns how many.
function prune_causes(dead_hour, living_hour, most)
  local deleted, kept = 0, tag .. ':cause_hours'
  for _, name in ipairs(call('ZRANGEBYSCORE', kept, '-inf', '(' .. living_hour)) do
    local key, hour = kept .. ':' .. name, tonumber(sub(name, 2))
    if sub(name, 1, 1) == 'd' and hour < dead_hour then
      deleted = deleted + call('HLEN', key)
      call('UNLINK', key)
      call('ZREM', kept, name)
    elseif sub(name, 1, 1) == 'l' and deleted < most then
      deleted = deleted + forget_hour(name, most - deleted)
    end
  end
  return deleted
end
