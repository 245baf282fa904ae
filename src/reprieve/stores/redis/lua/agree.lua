-- Agrees on the number of partitions, which only grows.
--
-- needs: calls
-- KEYS  1: the first partition
-- ARGV  1: the layout that the caller knows  2: how many partitions it wants at the least, or 0  3: how many a new store has
--          if nobody says it
-- Returns: {layout, partitions}; nothing is written if the layout is newer

local known, wanted = tonumber(ARGV[1]), tonumber(ARGV[2])
local found = call('HMGET', P .. ':m', 'layout', 'partitions')
local layout, partitions = tonumber(found[1] or known), tonumber(found[2] or 0)
local count = max(partitions, wanted, partitions == 0 and wanted == 0 and tonumber(ARGV[3]) or 1)
if layout <= known and (not found[1] or count ~= partitions) then
  call('HSET', P .. ':m', 'layout', known, 'partitions', count)
end
return {layout, count}
