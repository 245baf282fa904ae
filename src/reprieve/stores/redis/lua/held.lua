-- Answers the jobs that run, all of them or those of a session.
--
-- needs: calls forgotten record rate limits places line events settle look_part
-- KEYS  1: the partition
-- ARGV  1: the id after which to go on, or ''  2: how many at the most
-- Answer: as in look_part.lua, in the order of the ids

local ids = {}
for _, session in ipairs(sessions_of()) do
  for _, id in ipairs(call('HKEYS', P .. ':y:' .. session)) do
    if id > ARGV[1] then
      ids[#ids + 1] = id
    end
  end
end
table.sort(ids)
local some = {}
for number = 1, min(#ids, tonumber(ARGV[2])) do
  some[number] = ids[number]
end
return look(some)
