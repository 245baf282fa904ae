-- Jobs as they are: their records, and what is known of them beside these.
--
-- needs calls: tag, call, format, fetch_fields
-- needs record: WAITING, is_sound, sound, lost_lane, lane_in
-- needs lanes: lane_ref
-- needs sessions: unpack_lease, find_leases, cancel_requests
-- exports: add_stored, read_stored

-- Adds a job to a reply: id, record, 'running', 'succeeded' or 'recorded' (as the record says), its session or '', since
-- when it runs or when it succeeded, and its cancel request or ''.
function add_stored(answer, id, record, state, session, at, cancel_request)
  local count = #answer
  answer[count + 1], answer[count + 2], answer[count + 3] = id, record, state
  answer[count + 4], answer[count + 5], answer[count + 6] = session, at, cancel_request
end

-- Returns jobs by their ids, those that are stored.
function read_stored(ids)
  local answer, records, waiting, numbers = {}, fetch_fields(tag .. ':jobs', ids), {}, {}
  for number, record in ipairs(records) do
    if record and (string.byte(record, 5) == WAITING or not is_sound(record)) then
      waiting[#waiting + 1], numbers[#numbers + 1] = ids[number], number
    end
  end
  local leases, leased = find_leases(waiting), {}
  for index, number in ipairs(numbers) do
    leased[number] = leases[index]
  end
  local requests = cancel_requests(waiting)
  for number, record in ipairs(records) do
    local id, lease = ids[number], leased[number]
    if record and lease then
      local _, since, version, lane = unpack_lease(lease[2])
      add_stored(answer, id, sound(record, version - 1, lane), 'running', lease[1], format('%.0f', since), requests[id] or '')
    elseif record then
      record = sound(record, 0, lost_lane(''))
      local is_waiting = string.byte(record, 5) == WAITING
      local ended = is_waiting and call('ZSCORE', tag .. ':succeeded:' .. lane_ref(lane_in(record)).queue, id)
      add_stored(answer, id, record, ended and 'succeeded' or 'recorded', '', ended or '0', '')
    end
  end
  return answer
end
