-- Returns running jobs by their ids, also where their records are lost.
--
-- needs calls: tag, format, fetch_fields, split
-- needs record: sound
-- needs sessions: unpack_lease, find_leases, cancel_requests
-- needs stored_jobs: add_stored
-- KEYS     1: the partition
-- ARGV     1: ids, 16 bytes each
-- Returns: see `add_stored`

local ids, answer = split(ARGV[1], 16), {}
local records, leases, requests = fetch_fields(tag .. ':jobs', ids), find_leases(ids), cancel_requests(ids)
for number, id in ipairs(ids) do
  local lease = leases[number]
  if lease then
    local _, since, version, lane = unpack_lease(lease[2])
    local record = sound(records[number] or '', version - 1, lane)
    add_stored(answer, id, record, 'running', lease[1], format('%.0f', since), requests[id] or '')
  end
end
return answer
