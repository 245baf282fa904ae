-- Returns the jobs that run, all of them or those of a session.
--
-- needs calls: tag, call, format, fetch_fields
-- needs record: sound
-- needs sessions: all_sessions, unpack_lease, cancel_requests
-- needs stored_jobs: add_stored
-- KEYS     1: the partition
-- ARGV     1: the session and  2: the id after which to go on, or '' and ''  3: how many at most
--          4: the only session that is wanted, or '' for all
-- Returns: see `add_stored`; in the order of the sessions and of their jobs' ids

local after_session, after_id, left = ARGV[1], ARGV[2], tonumber(ARGV[3])

-- Returns the ids that a session holds, in order, after those of earlier pages.
local function held_ids(session)
  local ids = {}
  if session >= after_session then
    for _, id in ipairs(call('HKEYS', tag .. ':leases:' .. session)) do
      if session > after_session or id > after_id then
        ids[#ids + 1] = id
      end
    end
    table.sort(ids)
  end
  return ids
end

local sessions = ARGV[4] == '' and all_sessions() or {ARGV[4]}
table.sort(sessions)
local answer = {}
for _, session in ipairs(sessions) do
  if left <= 0 then
    break
  end
  local ids = held_ids(session)
  while #ids > left do
    ids[#ids] = nil
  end
  left = left - #ids
  local records, requests = fetch_fields(tag .. ':jobs', ids), cancel_requests(ids)
  for number, lease in ipairs(fetch_fields(tag .. ':leases:' .. session, ids)) do
    local _, since, version, lane = unpack_lease(lease)
    local id, record = ids[number], sound(records[number] or '', version - 1, lane)
    add_stored(answer, id, record, 'running', session, format('%.0f', since), requests[id] or '')
  end
end
return answer
