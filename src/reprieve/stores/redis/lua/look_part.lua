-- Part: jobs as they are: their record, and what is known of them beside it.

-- Answers {id, record, how, session or '', when, the wish that it stops or '', …} for those that are there; how is
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
  local wishes = wishes_of(waiting)
  for number, record in ipairs(records) do
    if record then
      local how, session, at, wish = 'w', '', '0', ''
      if leased[number] then
        local _, since = lease_of(leased[number][2])
        how, session, at = 'r', leased[number][1], format('%.0f', since)
        wish = wishes[ids[number]] or ''
      elseif string.byte(record, 5) == WAITING then
        local ended = call('ZSCORE', P .. ':ok:' .. place_of(lane_in(record)).queue, ids[number])
        if ended then
          how, at = 's', ended
        end
      end
      for _, part in ipairs({ids[number], record, how, session, at, wish}) do
        answer[#answer + 1] = part
      end
    end
  end
  return answer
end
