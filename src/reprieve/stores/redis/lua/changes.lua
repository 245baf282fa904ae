-- Changes of jobs as scripts get them, and the lanes that their jobs were leased from.
--
-- A change is a table: `id`, `expected` (the version that it guards), `at`, `is_success`, `session` ('' if it guards a
-- version instead of a lease), `event` and `audit` ('' for none). All but plain successes also have the job's new `state`, `wait`,
-- `due`, `version`, `lane`, `expires` (false: never) and `record`, a `result` kept until `result_until`, `yields`: whether a
-- cancel request ends the job instead, `delta`: what it counts as in series, '' for nothing, and `is_survived_failure`: whether
-- an attempt has failed, and the job lives.
--
-- needs calls: tag, fetch_fields
-- needs lanes: load_lane_refs
-- needs sessions: unpack_lease
-- exports: read_changes, read_leases

local HEAD, HEAD_BYTES = '>Bc16I4dB', 30

-- Reads changes: a head of 30 bytes for each, and six arguments from `index` on for those that are no plain success of
-- the calling session.
function read_changes(heads, session, arguments, index)
  local changes = {}
  for first = 1, #heads, HEAD_BYTES do
    local has_details, id, expected, at, is_success = struct.unpack(HEAD, heads, first)
    local change = {id = id, expected = expected, at = at, is_success = is_success == 1, session = session, event = '', audit = ''}
    if has_details == 1 then
      local info = cmsgpack.unpack(arguments[index])
      change.session, change.state, change.wait, change.due = info[1], info[2], info[3], info[4]
      change.version, change.result_until, change.lane, change.yields = info[5], info[6], info[7], info[8]
      change.expires, change.is_survived_failure = info[9], info[10]
      change.record, change.event, change.result = arguments[index + 1], arguments[index + 2], arguments[index + 3]
      change.audit, change.delta = arguments[index + 4], arguments[index + 5]
      index = index + 6
    end
    changes[#changes + 1] = change
  end
  return changes
end

-- Notes for each change of a session which lane its job was leased from; nothing if the session does not hold the job
-- in that version.
function read_leases(changes)
  local by_session = {}
  for _, change in ipairs(changes) do
    if change.session ~= '' then
      local list = by_session[change.session]
      if not list then
        list = {ids = {}, changes = {}}
        by_session[change.session] = list
      end
      list.ids[#list.ids + 1], list.changes[#list.changes + 1] = change.id, change
    end
  end
  local names, known = {}, {}
  for session, list in pairs(by_session) do
    for number, packed in ipairs(fetch_fields(tag .. ':leases:' .. session, list.ids)) do
      if packed then
        local _, _, version, lane = unpack_lease(packed)
        if version == list.changes[number].expected then
          list.changes[number].leased_from = lane
          if not known[lane] then
            known[lane] = true
            names[#names + 1] = lane
          end
        end
      end
    end
  end
  load_lane_refs(names)
end
