-- Part: jobs as they are: their record, and what is known of them beside it.

-- Answers {id, record, how, session or '', when, is asked to stop (0 or 1), …} for those that are there; how is
-- 'w' as the record says, 'r' running since, 's' succeeded at.
local function look(ids)
  local answer, records, waiting, numbers = {}, fetch(P .. ':j', ids), {}, {}
  for number, record in ipairs(records) do
    if record and string.byte(record, 5) == WAITING then
      waiting[#waiting + 1], numbers[#numbers + 1] = ids[number], number
    end
  end
  local leases, leased = leases_of(waiting), {}
  for place, number in ipairs(numbers) do
    leased[number] = leases[place]
  end
  local is_marked = call('HLEN', P .. ':mk') > 0
  for number, record in ipairs(records) do
    if record then
      local how, session, at, stop = 'w', '', '0', 0
      if leased[number] then
        local _, since = lease_of(leased[number][2])
        how, session, at = 'r', leased[number][1], format('%.0f', since)
        local mark = is_marked and call('HGET', P .. ':mk', ids[number])
        stop = mark and string.byte(mark, 1) or 0
      elseif string.byte(record, 5) == WAITING then
        local ended = call('ZSCORE', P .. ':ok:' .. place_of(shelf_in(record)).queue, ids[number])
        if ended then
          how, at = 's', ended
        end
      end
      for _, part in ipairs({ids[number], record, how, session, at, stop}) do
        answer[#answer + 1] = part
      end
    end
  end
  return answer
end
