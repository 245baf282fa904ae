-- The index of tried jobs that are due later: sorted sets of ids by the time at which they are due, of jobs that wait for a retry
-- (2), or for a gate or a budget (3); by tenant, task, dependency, code and fingerprint. A job that was never tried is in none.
--
-- needs calls: tag, call_many, list_in
-- needs record: lane_in, cause_in
-- exports: list_tried, unlist_tried

-- Returns the sorted sets that list a job, by its record.
local function keys_of(record, delay)
  local tenant, task, dependency = string.match(lane_in(record), '^%Z*%z(%Z*)%z(%Z*)%z(%Z*)')
  local _, code, fingerprint = cause_in(record)
  local by = tag .. ':delayed_by:' .. delay
  local keys = {by .. 't' .. tenant, by .. 'k' .. task, by .. 'd' .. dependency}
  if code ~= '' then
    keys[#keys + 1] = by .. 'c' .. code
  end
  if fingerprint ~= '' then
    keys[#keys + 1] = by .. 'f' .. fingerprint
  end
  return keys
end

-- Adds a job to what is to be listed: its time and id under each key.
function list_tried(lists, job, delay)
  for _, key in ipairs(keys_of(job.record, delay)) do
    local list = list_in(lists, key)
    list[#list + 1], list[#list + 2] = job.due, job.id
  end
end

-- Takes jobs from all lists; `delays` has the kind of wait of each, 1 for those that are in none.
function unlist_tried(ids, records, delays)
  local lists = {}
  for number, id in ipairs(ids) do
    if delays[number] > 1 then
      for _, key in ipairs(keys_of(records[number], delays[number])) do
        local list = list_in(lists, key)
        list[#list + 1] = id
      end
    end
  end
  for key, list in pairs(lists) do
    call_many('ZREM', key, list)
  end
end
