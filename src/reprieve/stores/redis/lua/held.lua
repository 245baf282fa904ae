-- Returns the jobs that run, all of them or those of a session.
--
-- needs: calls forgotten record rate limits places line events settle
-- KEYS  1: the partition
-- ARGV  1: the session and  2: the id after which to go on, or '' and ''  3: how many at the most
--       4: the only session that is meant, or '' for all
-- Returns: as in look_part.lua, in the order of the sessions and of their jobs' ids

local after, last, left = ARGV[1], ARGV[2], tonumber(ARGV[3])
local sessions = ARGV[4] == '' and sessions_of() or {ARGV[4]}
table.sort(sessions)
local answer = {}
for _, session in ipairs(sessions) do
  if left <= 0 then
    break
  end
  local key, ids, some = P .. ':y:' .. session, {}, {}
  if session >= after then
    for _, id in ipairs(call('HKEYS', key)) do
      if session > after or id > last then
        ids[#ids + 1] = id
      end
    end
    table.sort(ids)
  end
  for number = 1, min(#ids, left) do
    some[number] = ids[number]
  end
  left = left - #some
  local records, wishes = fetch(P .. ':j', some), wishes_of(some)
  for number, lease in ipairs(fetch(key, some)) do
    local _, since = lease_of(lease)
    for _, part in ipairs({some[number], records[number], 'r', session, format('%.0f', since), wishes[some[number]] or ''}) do
      answer[#answer + 1] = part
    end
  end
end
return answer
