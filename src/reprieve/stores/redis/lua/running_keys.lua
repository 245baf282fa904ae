-- Returns which jobs run since when and from which lane, all of them or those of a session.
--
-- needs calls: tag, call, format
-- needs sessions: all_sessions, unpack_lease
-- KEYS     1: the partition
-- ARGV     1: the only session that is wanted, or '' for all
-- Returns: {since when, id, lane, …}

local answer = {}
for _, session in ipairs(ARGV[1] == '' and all_sessions() or {ARGV[1]}) do
  local leases = call('HGETALL', tag .. ':leases:' .. session)
  for number = 1, #leases, 2 do
    local _, since, _, lane = unpack_lease(leases[number + 1])
    local count = #answer
    answer[count + 1], answer[count + 2], answer[count + 3] = format('%.0f', since), leases[number], lane
  end
end
return answer
