-- Notes cancel requests and progress beside jobs that run.
--
-- needs calls: tag, call, split, write_even_when_full, notify
-- needs sessions: find_leases, unpack_lease, unpack_annotation
-- needs audit: with_fields, record_audit
-- KEYS     1: the partition
-- ARGV     1: for each annotation: session or '', whether it has progress (msgpack)
--          2: ids  3 …: for each annotation the cancel request or '', its audit entry without tenant and queue or '', and
--             progress
-- Returns: for each annotation 1 or 0, whether the job was running (in that session)

-- Returns an audit entry with the queue and the tenant of a lease.
local function with_names(packed, lease)
  local _, _, _, lane = unpack_lease(lease)
  local queue, tenant = string.match(lane, '^(%Z*)%z(%Z*)')
  return with_fields(packed, {queue = queue, tenant = tenant})
end

local annotations, ids = cmsgpack.unpack(ARGV[1]), split(ARGV[2], 16)
write_even_when_full()
local leases, answer, entries, has_new_request = find_leases(ids), {}, {}, false
for number, annotation in ipairs(annotations) do
  local lease, id, session, has_progress = leases[number], ids[number], annotation[1], annotation[2]
  local is_running = lease and (session == '' or session == lease[1])
  if is_running then
    local request, progress = unpack_annotation(call('HGET', tag .. ':annotations', id) or '\0\0')
    local new_request, entry, new_progress = unpack(ARGV, 3 * number, 3 * number + 2)
    if request == '' and new_request ~= '' then
      request, has_new_request = new_request, true
      entries[#entries + 1] = with_names(entry, lease[2])
    end
    if has_progress then
      progress = '\1' .. new_progress
    end
    call('HSET', tag .. ':annotations', id, struct.pack('>I2', #request) .. request .. progress)
  end
  answer[number] = is_running and 1 or 0
end
record_audit(entries)
if has_new_request then
  notify('*')
end
return answer
